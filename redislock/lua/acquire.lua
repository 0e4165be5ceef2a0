-- ACQUIRE: ARGV 2 owner address, 3 ttl ms, 4 '1' to queue, '2' if the attempt should be in the queue, 5 metadata
-- -> {-1 abandoned} {1 granted, us, left, token, unexpected}
--    {0 held, us, left, token, value, first in the queue, unexpected, subscribed on this server}
-- unexpected is 1 if an attempt that was queued and subscribed would have been notified before.
if other_type then return {-2, integer(us), other_type} end
if redis.call('EXISTS', KEYS[4]) == 1 then return {-1, integer(us)} end
local owner, ttl, meta = string.sub(ARGV[2], 1, 32), tonumber(ARGV[3]), ARGV[5]
if meta ~= '' then meta = ' ' .. meta end

if value and parse_owner(value) == owner then
  -- The attempt polled although it has a grant, whose notification may be on its way: the same grant, for the whole TTL.
  local left, token = extend(ttl), last_token()
  notify_head(left)
  if token == 0 then token = next_token(ttl) end
  return {1, integer(us), integer(left), integer(token), 1}
end
if not value then
  local next_owner, next_value = grant_next(owner)
  if not next_owner or next_owner == owner then
    local token = next_token(ttl)
    redis.call('SET', KEYS[1], ARGV[2] .. meta, 'NX', 'PX', integer(ttl))
    if next_owner then notify_head(ttl) end
    return {1, integer(us), integer(ttl), integer(token), next_owner and 0 or 1}
  end
  value = next_value
end

local left, is_head, unexpected, here = redis.call('PTTL', KEYS[1]), 0, 0, 0
if ARGV[4] ~= '0' then
  local member = ARGV[2] .. ' ' .. ARGV[3] .. meta
  if not redis.call('ZSCORE', KEYS[2], member) then
    -- behind the last waiter, also if the clock was set back
    local score = tonumber(redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')[2] or '0')
    redis.call('ZADD', KEYS[2], integer(math.max(us, score + 1)), member)
    unexpected = 1
  end
  keep_queue(math.max(left, 0))
  if head() == member then is_head = 1 end
  if subscribed(string.sub(ARGV[2], 34, 50)) then here = 1 end
end
return {0, integer(us), integer(left), integer(parse_owner(value) and last_token() or 0), value, is_head, unexpected, here}
