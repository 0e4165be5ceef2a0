-- ABANDON: ARGV 2 owner id, 3 lifetime of the tombstone in ms or '0', 4 the attempt's member of the queue
-- -> {1 a grant was released, us} or {0, us}
tombstone(ARGV[3])
local removed = head() and redis.call('ZREM', KEYS[2], ARGV[4])
if removed == 0 then
  -- The attempt did not queue, or another process with another address abandons it. Both are rare: search the queue.
  for _, m in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
    if parse_owner(m) == ARGV[2] then removed = redis.call('ZREM', KEYS[2], m) end
  end
end
if value and parse_owner(value) == ARGV[2] then
  if not grant_next() then redis.call('DEL', KEYS[1]) end
  return {1, integer(us)}
end
if removed == 1 then
  -- The head may have changed. Behind a foreign holder it polls at once.
  if value and parse_owner(value) then notify_head(math.max(redis.call('PTTL', KEYS[1]), 0)) else notify_head(0) end
end
return {0, integer(us)}
