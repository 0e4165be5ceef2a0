-- QUORUM RELEASE: ARGV 2 owner, 3 as in RELEASE, 4 the attempt's member of the queue
-- -> {1, us} or {0 not the owner, us}
tombstone(ARGV[3])
carry(0)
local head = first()
local gone = head and redis.call('ZREM', KEYS[2], ARGV[4])
if v and party(v) == ARGV[2] then
  if not next_holder() then redis.call('DEL', KEYS[1]) end
  return {1, S(us)}
end
if gone == 1 and head == ARGV[4] then
  -- beside a foreign holder the next has to ask by itself
  if v and party(v) then tell_head(math.max(redis.call('PTTL', KEYS[1]), 0)) else tell_head(0) end
end
return {0, S(us)}
