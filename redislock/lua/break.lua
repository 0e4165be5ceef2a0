-- BREAK -> {1, us, left, token, removed value} or {0 it was free, us}
if kind then return {-2, S(us), kind} end
if not v then return {0, S(us)} end
local left = redis.call('PTTL', KEYS[1])
local o, a = party(v)
local tok = S(o and last() or 0)
if o then tell(a, 'l ' .. o) end
if not next_holder() then redis.call('DEL', KEYS[1]) end
return {1, S(us), S(left), tok, v}
