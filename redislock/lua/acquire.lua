-- ACQUIRE: ARGV 2 party, 3 ttl ms, 4 '1' to wait in the queue and '2' for one who
-- believes to stand there, 5 metadata
-- -> {-1 abandoned} {1 granted, us, left, token, unexpected}
--    {0 held, us, left, token, value, first in queue, unexpected, listens here}
-- Unexpected: had it stood there and listened, it would have been told.
if kind then return {-2, S(us), kind} end
if redis.call('EXISTS', KEYS[4]) == 1 then return {-1, S(us)} end
local owner, ttl, meta = string.sub(ARGV[2], 1, 32), tonumber(ARGV[3]), ARGV[5]
if meta ~= '' then meta = ' ' .. meta end

if v and party(v) == owner then
  -- asked again, or the push is still on its way: the same grant, for its whole time
  local left, tok = extend(ttl), last()
  tell_head(left)
  if tok == 0 then tok = raise(ttl) end
  return {1, S(us), S(left), S(tok), 1}
end
if not v then
  local who, value = next_holder(owner)
  if not who or who == owner then
    local tok = raise(ttl)
    redis.call('SET', KEYS[1], ARGV[2] .. meta, 'NX', 'PX', S(ttl))
    if who then tell_head(ttl) end
    return {1, S(us), S(ttl), S(tok), who and 0 or 1}
  end
  v = value
end

local left, head, unexpected, here = redis.call('PTTL', KEYS[1]), 0, 0, 0
if ARGV[4] ~= '0' then
  local m = ARGV[2] .. ' ' .. ARGV[3] .. meta
  if not redis.call('ZSCORE', KEYS[2], m) then
    -- after the last one, whatever the clock says
    local score = tonumber(redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')[2] or '0')
    redis.call('ZADD', KEYS[2], S(math.max(us, score + 1)), m)
    unexpected = 1
  end
  keep_queue(math.max(left, 0))
  if first() == m then head = 1 end
  if listens(string.sub(ARGV[2], 34, 50)) then here = 1 end
end
return {0, S(us), S(left), S(party(v) and last() or 0), v, head, unexpected, here}
