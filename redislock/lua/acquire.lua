-- ACQUIRE: ARGV 2 owner address, 3 ttl ms, 4 '1' to queue, '2' if the attempt should be in the queue, 5 metadata,
--   6 the share, <weight>/<capacity>, none for the whole key
-- -> {-1 abandoned} {-7 shares of another capacity hold the lock or wait for it, us, capacity}
--    {1 granted, us, left, token, unexpected, slots, length of the provisional grants that this request made}
--    {0 held, us, left, token, value, whether the attempt is the watcher, unexpected, subscribed on this
--       server, length of the provisional grants that this request made, whether the first waiter was asked to poll}
-- unexpected is 1 if an attempt that was queued and subscribed would have been notified before. Of a shared lock left,
-- token and value are those of the holder whose lease ends first.
if other_type then return {-2, integer(us), other_type} end
if redis.call('EXISTS', KEYS[4]) == 1 then return {-1, integer(us)} end
local owner, addr = parse_owner(ARGV[2])
local ttl, meta, share, handed_over, unclaimed = tonumber(ARGV[3]), ARGV[5], ARGV[6], nil, nil
self, self_addr = owner, addr

if holder == owner then
  -- The attempt polled although it has a grant, whose notification may be on its way: the same grant, for the whole TTL.
  local left = extend(ttl)
  showed_life(addr)
  notify_watcher(addr, left)
  return {1, integer(us), integer(left), holder_token(), 1}
end
local function member() return ARGV[2] .. ' ' .. ARGV[3] .. (share and ':' .. share or '') .. (meta ~= '' and ' ' .. meta or '') end
if shared or share then
  if share then wanted = member() end
  local decided = shares.begin(owner, addr, ttl, share)
  if decided then return decided end
  unclaimed = shares.unclaimed
end
if not value or shared then
  local next_owner, next_value, ms
  if shared then
    if share then unanswered() end
    next_owner, next_value, ms = shares.admit()
  else
    next_owner, next_value, ms = grant_next(true, unclaimed)
    if share and not next_owner then next_owner, next_value, ms = shares.admit(unclaimed) end
  end
  if next_owner == AGAIN then return {AGAIN, integer(us)} end
  if share and next_owner == owner then return shares.granted(ms) end
  if not shared and (not next_owner or next_owner == owner) then
    local token = next_token() -- the first write: a full memory refuses it
    redis.call('SET', KEYS[1], value_of(ARGV[2], token, meta), 'NX', 'PX', integer(ttl))
    showed_life(addr)
    if next_owner then notify_watcher(addr, ttl) end
    return {1, integer(us), integer(ttl), token, next_owner and 0 or 1}
  end
  value, handed_over = next_value, ms
  if not shared then holder, holder_addr = parse_owner(value) end
end
local left, watches, unexpected, here, asked = nil, 0, 0, 0, 0
if shared then
  value, left = shares.first()
  holder, holder_addr = parse_owner(value)
else
  left = redis.call('PTTL', KEYS[1])
end
if ARGV[4] ~= '0' then
  local member = member()
  if not redis.call('ZSCORE', KEYS[2], member) then
    -- behind the last waiter, also if the clock was set back
    local score = tonumber(redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')[2] or '0')
    if share then shares.note(share) end
    redis.call('ZADD', KEYS[2], integer(math.max(us, score + 1)), member)
    unexpected = 1
  end
  if holder_addr ~= addr then showed_life(addr) end
  keep_queue(math.max(left, 0))
  if handed_over or watcher(holder_addr) == member then watches = 1 end
  if subscribed(addr) then here = 1 end
  if shared then
    redis.call('ZREM', KEYS[2], '?' .. owner) -- it is alive
    if share then asked = ask() end
  end
end
return {0, integer(us), integer(left), holder_token(), value, watches, unexpected, here, integer(handed_over or 0), asked}
