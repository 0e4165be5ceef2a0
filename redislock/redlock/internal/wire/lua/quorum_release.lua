-- QUORUM RELEASE: ARGV 2 owner, 3 as in RELEASE, 4 the attempt's member of the queue
-- -> {1, us, length of the next provisional grant} or {0 not the owner, us}
tombstone(ARGV[3])
carry(0)
local first = waiters(1)[1]
local removed = first and redis.call('ZREM', KEYS[2], ARGV[4])
if holder == ARGV[2] then
  local ms = free(holder_addr)
  return ms and {1, integer(us), ms} or {AGAIN, integer(us)}
end
-- The watcher may have changed. Behind a foreign holder it polls at once.
if removed == 1 then notify_watcher(holder_addr, holder and math.max(redis.call('PTTL', KEYS[1]), 0) or 0) end
refusal() -- a hold at the other nodes counts a quarantine
return {0, integer(us)}
