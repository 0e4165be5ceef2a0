-- QUORUM ACQUIRE: ARGV 2 party, 3 ttl ms, 4 '1' to wait in the queue and '2' for the
-- holder, who takes what is free whoever waits, 5 '<ticket> <metadata>', 6 ticket,
-- 7 us of this server's clock after which the request is too late, or '0',
--    8 the token of a grant whose YIELD may still arrive, or '0': what is granted gets a greater one
-- -> {-4 no vote, us, ms} {-3 too late} {-1 abandoned} {1 granted, us, left, token}
--    {0 held, us, left, token, value, first in queue}
if kind then return {-2, S(us), kind} end
if redis.call('EXISTS', KEYS[4]) == 1 then return {-1, S(us)} end
if ARGV[7] ~= '0' and us > tonumber(ARGV[7]) then return {-3, S(us)} end
if mute() > 0 then return {-4, S(us), S(mute())} end
local owner, ttl, yielded = string.sub(ARGV[2], 1, 32), tonumber(ARGV[3]), tonumber(ARGV[8])

if v and party(v) == owner then
  local left = extend(ttl)
  if last() <= yielded then raise(ttl) end
  tell_head(left)
  return {1, S(us), S(left), S(last())}
end
local function take()
  redis.call('SET', KEYS[1], ARGV[2] .. ' ' .. ARGV[5], 'NX', 'PX', S(ttl))
  return {1, S(us), S(ttl), S(last())}
end
if not v and ARGV[4] == '2' then
  carry(ttl)
  if yielded > 0 and last() <= yielded then raise(ttl) end
  local r = take()
  tell_head(ttl)
  return r
end
if ARGV[4] == '1' then
  redis.call('ZADD', KEYS[2], ARGV[6], ARGV[2] .. ' ' .. ARGV[3] .. ' ' .. ARGV[5])
end
if not v then
  local who, value = next_holder(owner)
  if not who or who == owner then
    raise(ttl)
    local r = take()
    tell_head(ttl)
    return r
  end
  v = value
end
local left, head = redis.call('PTTL', KEYS[1]), 0
if ARGV[4] == '1' then
  keep_queue(math.max(left, 0))
  if first() == ARGV[2] .. ' ' .. ARGV[3] .. ' ' .. ARGV[5] then head = 1 end
end
return {0, S(us), S(left), S(party(v) and last() or 0), v, head}
