-- INSPECT -> {1 held or 0 free, us, left, token, value, members of the queue each with its score...}
if kind then return {-2, S(us), kind} end
local r = {0, S(us), '0', '0', ''}
if v then
  r = {1, S(us), S(redis.call('PTTL', KEYS[1])), S(party(v) and last() or 0), v}
end
for _, m in ipairs(read('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES') or {}) do r[#r + 1] = m end
return r
