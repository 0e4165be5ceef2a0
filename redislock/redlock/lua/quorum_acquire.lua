-- QUORUM ACQUIRE: ARGV 2 owner@address, 3 ttl in ms, 4 '1' to wait in the queue, '2' for the
-- holder, which takes a free key before all waiters, 5 '<ticket> <metadata>', 6 ticket,
-- 7 us of this server's clock after which the request is too late, or '0', 8 the token of
-- a grant whose YIELD may still arrive, or '0': the new token is greater
-- -> {-5 another set} {-4 no vote, us, ms, id} {-3 too late} {-1 abandoned} {1 granted, us, left, token}
--    {0 held, us, left, token, value, first in queue, counter}
if other_type then return {-2, integer(us), other_type} end
if redis.call('EXISTS', KEYS[4]) == 1 then return {-1, integer(us)} end
if ARGV[7] ~= '0' and us > tonumber(ARGV[7]) then return {-3, integer(us)} end
if refusal() then return refusal() end
local owner, ttl, yielded = string.sub(ARGV[2], 1, 32), tonumber(ARGV[3]), tonumber(ARGV[8])

if value and parse_owner(value) == owner then
  local left = extend(ttl)
  if last_token() <= yielded then next_token(ttl) end
  notify_head(left)
  return {1, integer(us), integer(left), integer(last_token())}
end
local function take()
  redis.call('SET', KEYS[1], ARGV[2] .. ' ' .. ARGV[5], 'NX', 'PX', integer(ttl))
  return {1, integer(us), integer(ttl), integer(last_token())}
end
if not value and ARGV[4] == '2' then
  carry(ttl)
  if yielded > 0 and last_token() <= yielded then next_token(ttl) end
  local r = take()
  notify_head(ttl)
  return r
end
if ARGV[4] == '1' then
  redis.call('ZADD', KEYS[2], ARGV[6], ARGV[2] .. ' ' .. ARGV[3] .. ' ' .. ARGV[5])
end
if not value then
  local next_owner, next_value = grant_next(owner)
  if not next_owner or next_owner == owner then
    next_token(ttl)
    local r = take()
    notify_head(ttl)
    return r
  end
  value = next_value
end
local left, is_head = redis.call('PTTL', KEYS[1]), 0
if ARGV[4] == '1' then
  keep_queue(math.max(left, 0))
  if head() == ARGV[2] .. ' ' .. ARGV[3] .. ' ' .. ARGV[5] then is_head = 1 end
end
return {0, integer(us), integer(left), integer(parse_owner(value) and last_token() or 0), value, is_head, integer(last_token())}
