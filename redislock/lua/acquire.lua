if redis.call('EXISTS', KEYS[6]) == 1 then return {-1, us} end
if foreign[KEYS[1]] then return wrong_type(KEYS[1]) end
local self = {owner = ARGV[3], addr = ARGV[2], ttl = tonumber(ARGV[4]), share = ARGV[6], meta = meta}
self.weight, self.capacity = parse_share(self.share)
sender = self.addr
if self.weight then
  read('ZCARD', KEYS[5])
  local refusal = wrong_type(KEYS[4], KEYS[5])
  if refusal then return refusal end
end
local member = self.owner .. '@' .. self.addr .. ' ' .. ARGV[4] .. self.share .. meta
begin(sender)
local waits = read('ZSCORE', KEYS[2], member)
local no_place = waits and 0 or 1
local record, at = record_of(self.owner)
self.holds = record or holder == self.owner
if self.holds then
  despite_memory()
  if record then set_end(self.owner, at, us + self.ttl * 1000) else set_finish(us + self.ttl * 1000) end
  if ARGV[8] and least > last_token() then keep_token(integer(least)) end
end
admit(self, waits)
if mine or self.holds then
  inform(self.owner)
  save()
  send()
  if mine then return {1, us, self.ttl, pass(), no_place, mine.token, mine.slots, life()} end
  record, at = record_of(self.owner)
  if not record then record, at = value, finish end
  return {1, us, left_of(at), pass(), no_place, string.match(record, '^%S+ (%d+)'), slots_of(record) or '', life()}
end
if more then
  save()
  send()
  return {-6, us, shortest or 0}
end
if not waits and ARGV[5] ~= '0' then
  if foreign[KEYS[2]] then
    save()
    return wrong_type(KEYS[2])
  end
  -- behind the last waiter, also if the clock was set back
  local last = tonumber(redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')[2] or 0)
  redis.call('ZADD', KEYS[2], integer(math.max(us, last + 1)), member)
  waits = true
  if head and all_read then head[#head + 1] = member end
end
inform(self.owner)
local ask, first_waiter = 0, parse_waiter(waiter(1) or '')
if first_waiter and first_waiter.addr ~= sender and fits(self.weight, self.capacity) then
  local address = first_waiter.owner .. '@' .. first_waiter.addr
  if asked ~= address then
    asked, asked_at = address, us
    hint(first_waiter.addr, 'a ' .. first_waiter.owner .. ' ' .. KEYS[1])
  end
  ask = asked_at + PROVISIONAL_TTL * 1000 - us
end
local watches = waits and watcher() == member
save()
send()
record, at = first()
local _, _, channel = channel_of(sender)
local here = ARGV[5] == '0' and 0 or redis.call('PUBSUB', (channel_of(sender)), channel)[2]
return {0, us, left_of(at), pass(), no_place, (watches or is_unclaimed(record)) and 1 or 0, ask, here, shown(record), life()}
