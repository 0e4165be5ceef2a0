-- QUORUM RELEASE: ARGV 2 owner, 3 as in RELEASE, 4 the attempt's member of the queue
-- -> {1, us} or {0 not the owner, us}
tombstone(ARGV[3])
carry(0)
local first_member = head()
local removed = first_member and redis.call('ZREM', KEYS[2], ARGV[4])
if value and parse_owner(value) == ARGV[2] then
  if not grant_next() then redis.call('DEL', KEYS[1]) end
  return {1, integer(us)}
end
if removed == 1 and first_member == ARGV[4] then
  -- after a foreign holder the first waiter asks
  if value and parse_owner(value) then notify_head(math.max(redis.call('PTTL', KEYS[1]), 0)) else notify_head(0) end
end
refusal() -- a hold at the other nodes counts a quarantine
return {0, integer(us)}
