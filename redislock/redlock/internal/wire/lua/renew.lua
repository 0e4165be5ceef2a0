-- RENEW: ARGV 2 owner id, 3 ttl ms, 4 '1' to set the lease to exactly ttl, 5 how much longer the counter is kept, in ms, if it expires
-- -> {1, us} or {0 not the owner, us}
-- Without '1' RENEW never shortens the lease. It never takes a free key: another attempt may have held it meanwhile.
if holder ~= ARGV[2] then return {0, integer(us)} end
local left = tonumber(ARGV[3])
if ARGV[4] == '1' then redis.call('PEXPIRE', KEYS[1], integer(left)) else left = extend(left) end
if ARGV[5] then redis.call('PEXPIRE', KEYS[3], integer(left + tonumber(ARGV[5]))) end
showed_life(holder_addr)
notify_watcher(holder_addr, left)
return {1, integer(us)}
