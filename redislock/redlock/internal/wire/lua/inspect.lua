-- INSPECT -> {1 held or 0 free, us, left, token, value, members of the queue, each with its score...}
if other_type then return {-2, integer(us), other_type} end
local r = {0, integer(us), '0', '0', ''}
if value then r = {1, integer(us), integer(redis.call('PTTL', KEYS[1])), holder_token(), value} end
for _, m in ipairs(read('ZRANGEBYSCORE', KEYS[2], '0', '+inf', 'WITHSCORES') or {}) do r[#r + 1] = m end
return r
