-- RENEW: ARGV 2 owner, 3 ttl ms, 4 '1' to keep the key for just that long -> {1, us} or {0 not the owner, us}
-- Else it never shortens the lease, and it never takes a free key: what another may have taken meanwhile is lost.
if not v or party(v) ~= ARGV[2] then return {0, S(us)} end
local left = tonumber(ARGV[3])
if ARGV[4] == '1' then redis.call('PEXPIRE', KEYS[1], S(left)) else left = extend(left) end
if redis.call('PTTL', KEYS[3]) < left + KEEP / 2 then redis.call('PEXPIRE', KEYS[3], S(left + KEEP)) end
tell_head(left)
return {1, S(us)}
