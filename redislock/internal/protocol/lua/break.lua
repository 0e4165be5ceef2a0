-- BREAK: ARGV 2 the owner to remove, '' for any
-- -> {1, us, left, token, removed value} {2 another owner, us, left, token, its value}
--    {0 the key was free, us}
if other_type then return {-2, integer(us), other_type} end
if not value then return {0, integer(us)} end
local left = redis.call('PTTL', KEYS[1])
local owner, addr = parse_owner(value)
local token = integer(owner and last_token() or 0)
if ARGV[2] ~= '' and ARGV[2] ~= (owner or value) then return {2, integer(us), integer(left), token, value} end
if owner then notify(addr, 'l ' .. owner) end
if not grant_next() then redis.call('DEL', KEYS[1]) end
return {1, integer(us), integer(left), token, value}
