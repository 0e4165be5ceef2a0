-- ABANDON: ARGV 2 owner id, 3 lifetime of the tombstone in ms or '0', 4 the attempt's member of the queue
-- -> {1 a grant was released, us, length of the next provisional grant} or {0, us}
tombstone(ARGV[3])
local queued = waiters(1)[1]
local removed = queued and redis.call('ZREM', KEYS[2], ARGV[4])
if removed == 0 then
  -- The attempt did not queue, or another process with another address abandons it. Both are rare: search the queue.
  for _, m in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
    if parse_owner(m) == ARGV[2] then removed = redis.call('ZREM', KEYS[2], m) end
  end
end
if holder == ARGV[2] then
  local ms = free(holder_addr)
  return ms and {1, integer(us), ms} or {AGAIN, integer(us)}
end
if removed == 1 then
  -- The watcher may have changed. Behind a foreign holder it polls at once.
  notify_watcher(holder_addr, holder and math.max(redis.call('PTTL', KEYS[1]), 0) or 0)
end
return {0, integer(us)}
