-- RENEW: ARGV 2 owner id, 3 ttl ms, 4 '1' to set the lease to exactly ttl
-- -> {1, us} or {0 not the owner, us}
-- Without '1' RENEW never shortens the lease. It never takes a free key: another attempt may have held it meanwhile.
if not value or parse_owner(value) ~= ARGV[2] then return {0, integer(us)} end
local left = tonumber(ARGV[3])
if ARGV[4] == '1' then redis.call('PEXPIRE', KEYS[1], integer(left)) else left = extend(left) end
if redis.call('PTTL', KEYS[3]) < left + FENCE_TTL / 2 then redis.call('PEXPIRE', KEYS[3], integer(left + FENCE_TTL)) end
notify_head(left)
return {1, integer(us)}
