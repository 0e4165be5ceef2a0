-- QUORUM ACQUIRE: ARGV 2 owner@address, 3 ttl in ms, 4 '1' to wait in the queue, '2' for the
-- holder, which takes a free key before all waiters, 5 '<ticket> <metadata>', 6 ticket,
-- 7 us of this server's clock after which the request is too late, or '0', 8 the token of
-- a grant whose YIELD may still arrive, or '0': the new token is greater
-- -> {-5 another set} {-4 no vote, us, ms, id} {-3 too late} {-1 abandoned} {1 granted, us, left, token, entered}
--    {0 held, us, left, token, value, whether the attempt is the watcher, counter,
--       length of the provisional grant that this request made, entered}
-- entered is 1 if the attempt was not in the queue.
if other_type then return {-2, integer(us), other_type} end
if redis.call('EXISTS', KEYS[4]) == 1 then return {-1, integer(us)} end
if ARGV[7] ~= '0' and us > tonumber(ARGV[7]) then return {-3, integer(us)} end
if refusal() then return refusal() end
local owner, addr = parse_owner(ARGV[2])
local ttl, yielded, entered, handed_over = tonumber(ARGV[3]), tonumber(ARGV[8]), 0, nil
self, self_addr = owner, addr

if holder == owner then
  local left = extend(ttl)
  if last_token() <= yielded then next_token(ttl) end
  showed_life(addr)
  notify_watcher(addr, left)
  return {1, integer(us), integer(left), integer(last_token())}
end
local function take()
  redis.call('SET', KEYS[1], value_of(ARGV[2], ARGV[5]), 'NX', 'PX', integer(ttl))
  showed_life(addr)
  notify_watcher(addr, ttl)
  return {1, integer(us), integer(ttl), integer(last_token()), entered}
end
if not value and ARGV[4] == '2' then
  carry(ttl)
  if yielded > 0 and last_token() <= yielded then next_token(ttl) end
  return take()
end
local member = ARGV[2] .. ' ' .. ARGV[3] .. ' ' .. ARGV[5]
if ARGV[4] == '1' then entered = redis.call('ZADD', KEYS[2], ARGV[6], member) end
if not value then
  local next_owner, next_value, ms = grant_next(true)
  if next_owner == AGAIN then return {AGAIN, integer(us)} end
  if not next_owner or next_owner == owner then
    next_token(ttl)
    return take()
  end
  value, handed_over = next_value, ms
  holder, holder_addr = parse_owner(value)
end
if holder_addr ~= addr then showed_life(addr) end
local left, watches = redis.call('PTTL', KEYS[1]), 0
if ARGV[4] == '1' then
  keep_queue(math.max(left, 0))
  if handed_over or watcher(holder_addr) == member then watches = 1 end
end
return {0, integer(us), integer(left), holder_token(), value, watches, integer(last_token()), integer(handed_over or 0), entered}
