-- INSPECT -> {1 held or 0 free, us, left, token, value, members of the queue, each with its score...}
if other_type then return {-2, integer(us), other_type} end
local r = {0, integer(us), '0', '0', ''}
if value then
  r = {1, integer(us), integer(redis.call('PTTL', KEYS[1])), integer(parse_owner(value) and last_token() or 0), value}
end
for _, m in ipairs(read('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES') or {}) do r[#r + 1] = m end
return r
