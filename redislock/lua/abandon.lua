-- ABANDON: ARGV 2 owner, 3 as in RELEASE, 4 the attempt's member of the queue
-- -> {1 a grant was released, us} or {0, us}
tombstone(ARGV[3])
local gone = first() and redis.call('ZREM', KEYS[2], ARGV[4])
if gone == 0 then
  -- The whole queue is looked through, which is rare: after an unanswered request
  -- that did not queue, or for an attempt of another process with another address.
  for _, m in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
    if party(m) == ARGV[2] then gone = redis.call('ZREM', KEYS[2], m) end
  end
end
if v and party(v) == ARGV[2] then
  if not next_holder() then redis.call('DEL', KEYS[1]) end
  return {1, S(us)}
end
if gone == 1 then
  -- the first may have changed; beside a foreign holder it has to ask by itself
  if v and party(v) then tell_head(math.max(redis.call('PTTL', KEYS[1]), 0)) else tell_head(0) end
end
return {0, S(us)}
