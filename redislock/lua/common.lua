-- Common part of the scripts, behind their fast paths. The rule is that of package queuetest, and the names are its names.
-- KEYS: 1 lock, 2 queue, 3 fence counter, 4 holders of shares, 5 ends of their leases, 6 tombstone of the attempt
-- ARGV: 1 prefix of the channel of a process
-- us is the clock. A reply is {status, us, ...}.
--
-- An owner address is <owner id>@<process address>: 32 hex digits; 'p' or 's' and 16 hex digits.
-- The lock is a string. For an exclusive holder it is <owner address> <token>[ <metadata>]. While shares hold it, it is
-- '@shared r' (readers) or '@shared p<digits>' (permits: a digit for each, 1 if it is held). Else its holder is foreign.
-- The queue is a sorted set: <owner address> <ttl in ms>[:<weight>/<capacity>][ <metadata>], by the time of arrival.
-- The holders of shares are a hash: owner id -> <owner address> <token>:<weight>/<capacity>:<slots>:<u if pushed>[ <metadata>].
-- The slots are ranges: 0-1,4-4. The ends are a sorted set of owner ids. Both mean nothing if the lock has another value.
-- The field 's' of the hash has what is known of processes, each with its type:
--   s:<process>                   it is suspect
--   p:<process>:<token>:<number>  its pushed grants with at least that token are unclaimed, so many of them
--   a:<owner address>:<us>        the first waiter was asked then
--   u:<number>                    so many pushed grants have ended unclaimed
--   i:<us>                        when waiters were informed of a pushed grant
local PROVISIONAL_TTL, MIN_PROVISIONAL_TTL, MAX_UNCLAIMED = 3000, 250, 9
local INFORMED, INFORM_EVERY, INFORM_SLACK, CHUNK = 16, 1000000, 20000, 100 -- CHUNK: waiters that a script admits or removes at most
local FOREVER = 2 ^ 62

-- integer formats a number: tostring(1763000000000000) would be 1.763e+15.
local function integer(x) return string.format('%.0f', x) end

-- read is redis.call. For a key of another type it returns nil.
local function read(...)
  local r = redis.pcall(...)
  if type(r) ~= 'table' or not r.err then return r end
  if string.find(r.err, 'WRONGTYPE', 1, true) then return nil end
  return redis.call(...) -- raises the error
end

-- despite_memory is a write without effect. It is allowed when memory is exhausted, and then so is each write after it.
local function despite_memory() redis.pcall('ZREM', KEYS[2], '') end

local function parse_owner(s)
  local owner, addr = string.match(s, '^(%x+)@([ps]%x+)')
  if owner and #owner == 32 and #addr == 17 and (#s == 50 or string.sub(s, 51, 51) == ' ') then return owner, addr end
end

-- parse_share returns weight and capacity, nil for the whole key.
local function parse_share(s)
  local weight, capacity = string.match(s, '^:?(%d+)/(%d+)$')
  return tonumber(weight), tonumber(capacity)
end

-- parse_waiter returns a member of the queue as a table, nil if it is none.
local function parse_waiter(member)
  local owner, addr = parse_owner(member)
  local ttl, share, meta = string.match(string.sub(member, 51), '^ (%d+)(:?[%d/]*)(.*)$')
  if not owner or not ttl then return nil end
  local weight, capacity = parse_share(share)
  return {member = member, owner = owner, addr = addr, ttl = tonumber(ttl), share = share, weight = weight, capacity = capacity, meta = meta}
end

-- value is the value of the lock, false if it is free. kind is that of the holders: nil if there are none, 'x' exclusive
-- or foreign, 'r' readers, 'p' permits.
local value, other_type, kind, permits = read('GET', KEYS[1]), nil, nil, ''
local holder, holder_addr, finish -- of kind 'x': the owner, nil if it is foreign, and the end of its lease
if value == nil then
  value, other_type = '', redis.call('TYPE', KEYS[1]).ok
end
if value then
  kind, permits = string.match(value, '^@shared ([rp])([01]*)$')
  if not kind then
    kind, permits = 'x', ''
    holder, holder_addr = parse_owner(value)
    local left = redis.call('PTTL', KEYS[1])
    finish = left < 0 and FOREVER or us + left * 1000
  end
end

-- What is known of processes.
local suspects, unclaimed, asked, asked_at, missed, informed = {}, {}, nil, nil, 0, nil
local state = read('HGET', KEYS[4], 's') or ''
local known = state -- what is stored
for type, text in string.gmatch(state, '(%l):(%S+)') do
  local name, first, second = string.match(text, '^([^:]+):?(%d*):?(%d*)$')
  if type == 's' then suspects[name] = true end
  if type == 'p' then unclaimed[name] = {token = tonumber(first) or 0, count = tonumber(second) or 1} end
  if type == 'a' then asked, asked_at = name, math.min(tonumber(first) or 0, us) end -- the clock may have been set back
  if type == 'u' then missed = tonumber(name) or 0 end
  if type == 'i' then informed = tonumber(name) end
end
if informed and informed > us then informed = nil end

local function miss(addr, count)
  suspects[addr] = true
  missed = math.min(missed + count, MAX_UNCLAIMED)
end

-- channel_of returns the commands that count the subscribers of a process and publish to it, and the channel. A process
-- of a cluster ('s') has a sharded channel in the slot of the key.
local function channel_of(addr)
  if string.sub(addr, 1, 1) == 's' then return 'SHARDNUMSUB', 'SPUBLISH', '{' .. KEYS[1] .. '}:@' .. addr end
  return 'NUMSUB', 'PUBLISH', ARGV[1] .. addr
end

local function publish(addr, msg)
  local _, command, channel = channel_of(addr)
  redis.call(command, channel, msg)
end

-- reachable reports whether a process is subscribed on this server. If not, it publishes 'x' (resubscribe) to it once: a
-- subscriber on a replica receives it too.
local answers = {}
local function reachable(addr)
  if answers[addr] == nil then
    local count, _, channel = channel_of(addr)
    answers[addr] = redis.call('PUBSUB', count, channel)[2] > 0
    if not answers[addr] then publish(addr, 'x') end
  end
  return answers[addr]
end

-- waiters returns the first n waiters. A key of another type in the place of the queue is no queue, and must not keep a
-- lock from being released.
local head, head_n
local function waiters(n)
  if not head or head_n < n then
    head, head_n = read('ZRANGE', KEYS[2], 0, n - 1) or {}, n
  end
  return head
end

local hints = {} -- messages that are sent when all is written

local function hint(addr, msg) hints[#hints + 1] = {addr, msg} end

-- Shares.

local function slots_of(record) return string.match(record, '^%S+ %d+:%d+/%d+:([%d,-]*)') end

local function mark(slots, digit)
  for a, b in string.gmatch(slots or '', '(%d+)%-(%d+)') do
    a, b = tonumber(a), tonumber(b)
    permits = permits .. string.rep('0', b + 1 - #permits)
    permits = string.sub(permits, 1, a) .. string.rep(digit, b - a + 1) .. string.sub(permits, b + 2)
  end
end

-- take returns the lowest permits that are free.
local function take(weight)
  local ranges, from = {}, 1
  permits = permits .. string.rep('0', weight)
  while weight > 0 do
    local a, b = string.find(permits, '0+', from)
    b = math.min(b, a + weight - 1)
    ranges[#ranges + 1] = integer(a - 1) .. '-' .. integer(b - 1)
    weight, from = weight - (b - a + 1), b + 1
  end
  local slots = table.concat(ranges, ',')
  mark(slots, '1')
  permits = string.gsub(permits, '0+$', '')
  return slots
end

-- is_unclaimed reports whether a holder with that record is unclaimed.
local function is_unclaimed(record)
  local _, addr = parse_owner(record)
  local p = addr and unclaimed[addr]
  if not p then return false end
  local token, pushed = string.match(record, '^%S+ (%d+)(%S*)')
  return tonumber(token or 0) >= p.token and (pushed == '' or string.sub(pushed, -2) == ':u')
end

-- drop removes a share and returns its record. If the server has evicted the records, the permits are counted again.
local function drop(owner)
  local record = read('HGET', KEYS[4], owner) or nil
  redis.call('ZREM', KEYS[5], owner)
  if not record then
    permits = ''
    for _, other in ipairs(read('HVALS', KEYS[4]) or {}) do mark(slots_of(other), '1') end
    return nil
  end
  redis.call('HDEL', KEYS[4], owner)
  mark(slots_of(record), '0')
  local _, addr = parse_owner(record)
  local was = is_unclaimed(record)
  if was then
    local p = unclaimed[addr]
    p.count = p.count - 1
    if p.count <= 0 then unclaimed[addr] = nil end
  end
  return record, was, addr
end

-- record_of returns the record of a share and the end of its lease, nil if the owner has none.
local function record_of(owner)
  if kind ~= 'r' and kind ~= 'p' then return nil end
  local at = read('ZSCORE', KEYS[5], owner)
  local record = at and read('HGET', KEYS[4], owner)
  if record then return record, tonumber(at) end
end

-- first returns the value or record of the holder whose lease ends first, and that end.
local first_record, first_end
local function first()
  if not first_end then
    if kind == 'x' then
      first_record, first_end = value, finish
    elseif kind then
      local e = redis.call('ZRANGE', KEYS[5], 0, 0, 'WITHSCORES')
      first_record, first_end = read('HGET', KEYS[4], e[1]) or '', tonumber(e[2])
    end
  end
  return first_record, first_end
end
local function forget_first() first_record, first_end = nil, nil end

local shares_changed, last_changed = false, false -- the marker must be written; the last end may have changed

-- gone is called when shares were removed.
local function gone()
  shares_changed = true
  forget_first()
  if (read('ZCARD', KEYS[5]) or 0) == 0 then
    redis.call('DEL', KEYS[1], KEYS[5])
    kind, permits, value, shares_changed = nil, '', false, false
  end
end

-- left_of returns a lease in ms.
local function left_of(at) return at == FOREVER and -1 or math.max(math.ceil((at - us) / 1000), 0) end

-- The steps of every operation.

local noted, noted_end -- the watcher, and the end of the first lease, before the operation
local more = false     -- CHUNK waiters or holders were handled, and there may be more
local sender           -- of an Acquire

local function watcher()
  if not kind then return nil end
  local list = waiters(INFORMED)
  local _, addr = parse_owner(first() or '')
  for i = 1, math.min(#list, INFORMED) do
    local _, other = parse_owner(list[i])
    if other ~= addr then return list[i] end
  end
  return list[1]
end

-- begin removes what has ended, notes the watcher, and records that a request of process addr has arrived.
local function begin(addr)
  local ended = false
  if kind == 'r' or kind == 'p' then
    local over = read('ZRANGEBYSCORE', KEYS[5], '-inf', integer(us), 'LIMIT', 0, CHUNK) or {}
    for _, owner in ipairs(over) do
      local _, was, process = drop(owner)
      if was then miss(process, 1) end
    end
    more = #over == CHUNK
    ended = #over > 0
    if ended or (read('ZCARD', KEYS[5]) or 0) == 0 then gone() end
  else
    for process, p in pairs(unclaimed) do
      if process ~= holder_addr or not is_unclaimed(value) then
        miss(process, p.count)
        unclaimed[process] = nil
      end
    end
  end
  if not kind and not waiters(INFORMED)[1] then
    suspects, unclaimed, asked, missed, informed = {}, {}, nil, 0, nil
  end
  if kind and not ended then
    noted = watcher()
    noted_end = select(2, first())
  end
  if addr then
    if unclaimed[addr] then unclaimed[addr], missed = nil, 0 end
    suspects[addr] = nil
    if asked and string.sub(asked, 34) == addr then asked = nil end
  end
end

-- fits reports whether a share can be held beside the holders.
local function fits(weight, capacity)
  if not weight then return not kind end
  if kind == 'x' or kind and (kind == 'r') ~= (capacity == 0) then return false end
  if capacity == 0 then return true end
  local _, held = string.gsub(permits, '1', '')
  return held + weight <= capacity
end

-- last_token returns the fence counter, 0 if it is no number up to which a double is exact.
local function last_token()
  local n = tonumber(read('GET', KEYS[3]) or 0) or 0
  return n < 9007199254740991 and n or 0
end

local granted, mine, shortest = {}, nil, nil -- mine: the grant of the attempt that asks

-- grant decides that w holds the key. apply writes it.
local function grant(w, own)
  w.lease = own and w.ttl or math.min(w.ttl, math.max(PROVISIONAL_TTL / 4 ^ missed, MIN_PROVISIONAL_TTL))
  w.own, w.slots = own, ''
  if own then mine = w else shortest = math.min(shortest or w.lease, w.lease) end
  if not w.weight then
    kind = 'x'
  elseif w.capacity == 0 then
    kind = 'r'
  else
    kind = 'p'
    w.slots = take(w.weight)
  end
  granted[#granted + 1] = w
end

-- apply writes the grants, and sends each process one message with its own. The key is written, with an expiry, before a
-- holder is notified: if the script fails in between, a short lease remains, and no waiter trusts a grant that does not exist.
local function apply(was)
  local token = math.max(last_token() + 1, us)
  local messages, order, records, ends = {}, {}, {}, {}
  redis.call('SET', KEYS[3], integer(token + #granted - 1))
  for i, w in ipairs(granted) do
    w.token = integer(token)
    w.address = w.owner .. '@' .. w.addr
    token = token + 1
    if w.weight then
      records[#records + 1] = w.owner
      records[#records + 1] = w.address .. ' ' .. w.token .. w.share .. ':' .. w.slots .. (w.own and ':' or ':u') .. w.meta
      ends[#ends + 1] = integer(us + w.lease * 1000 + i - 1) -- in the order of the tokens
      ends[#ends + 1] = w.owner
    end
    if not w.own then
      local p = unclaimed[w.addr]
      if not p then
        p = {token = tonumber(w.token), count = 0}
        unclaimed[w.addr] = p
      end
      p.count = p.count + 1
      if not messages[w.addr] then
        messages[w.addr], order[#order + 1] = {}, w.addr
      end
      local list = messages[w.addr]
      list[#list + 1] = w.owner .. ' ' .. w.token .. ' ' .. integer(w.lease) .. ' ' .. (w.slots ~= '' and w.slots or '-') .. ' '
    end
  end
  if kind == 'x' then
    local w = granted[1]
    value = w.address .. ' ' .. w.token .. w.meta
    holder, holder_addr, finish = w.owner, w.addr, us + w.lease * 1000
    redis.call('SET', KEYS[1], value, 'PX', integer(w.lease))
    if not w.own then redis.call('PEXPIREAT', KEYS[1], integer(math.ceil(us / 1000) + w.lease)) end
  else
    if not was then
      redis.call('DEL', KEYS[4], KEYS[5])
      known = ''
    end
    redis.call('HSET', KEYS[4], unpack(records))
    redis.call('ZADD', KEYS[5], unpack(ends))
    value, shares_changed, last_changed = true, true, true
  end
  forget_first()
  for _, addr in ipairs(order) do
    hint(addr, 'g ' .. integer(us) .. ' ' .. #messages[addr] .. ' ' .. table.concat(messages[addr]) .. KEYS[1])
  end
end

-- dismiss sends the process of a waiter that is removed a message, the first time.
local dismissed = {}
local function dismiss(w)
  if not dismissed[w.addr] then hint(w.addr, 'r ' .. w.owner .. ' ' .. KEYS[1]) end
  dismissed[w.addr] = true
end

-- admit grants the key to the waiters at the head of the queue for as long as they fit, and removes dead ones. self is
-- the attempt that asks: if it does not wait, it is granted the key behind the last waiter.
local function admit(self, waits)
  local was, removed, i, list = kind, {}, 1, waiters(INFORMED)
  local freed = false
  while true do
    if i > CHUNK then
      more = true
      break
    end
    if i > #list and #list == head_n then list = waiters(CHUNK) end
    local member = list[i]
    if not member then
      freed = true
      break
    end
    local w = parse_waiter(member)
    if not w then -- written by another program
    elseif suspects[w.addr] then
      dismiss(w)
    elseif w.addr ~= sender and not reachable(w.addr) then -- dead
    elseif fits(w.weight, w.capacity) then
      grant(w, self and w.owner == self.owner)
    elseif asked == w.owner .. '@' .. w.addr and asked_at + PROVISIONAL_TTL * 1000 <= us then
      suspects[w.addr] = true
      dismiss(w)
    else
      break
    end
    if w and asked == w.owner .. '@' .. w.addr then asked = nil end
    if self and w and w.owner == self.owner then waits = false end
    removed[#removed + 1] = member
    i = i + 1
  end
  if #removed > 0 then
    local read_all, rest = #list < head_n, {}
    for n = i, #list do rest[#rest + 1] = list[n] end
    read('ZREM', KEYS[2], unpack(removed))
    head = read_all and rest or nil
  end
  if self and not mine and not waits and freed and fits(self.weight, self.capacity) and not self.holds then grant(self, true) end
  if #granted > 0 then apply(was) end
end

-- inform decides which waiters are to know the end of the first lease.
local function inform(self)
  local now = watcher()
  if not now then return end
  local record, at = first()
  local changed = now ~= noted or at < noted_end - INFORM_SLACK
  local all = shortest and (not informed or informed + INFORM_EVERY <= us)
  if not changed and not all then return end
  if all then informed = us end
  local _, addr = parse_owner(record)
  local seen = {}
  if addr then seen[addr] = true end
  local list = waiters(INFORMED)
  for i = 1, math.min(#list, INFORMED) do
    local owner, to = parse_owner(list[i])
    if owner and owner ~= self and (changed and list[i] == now or all and not seen[to]) then
      hint(to, 'h ' .. owner .. ' ' .. integer(math.max(left_of(at), 0))) -- behind a foreign holder it asks at once
    end
    if to then seen[to] = true end
  end
end

-- save writes what has changed: the marker of shares, what is known of processes, and how long the keys are kept.
local function save()
  local waiting = waiters(INFORMED)[1]
  local last = finish and finish < FOREVER and finish or us
  if kind == 'r' or kind == 'p' then
    last = tonumber(redis.call('ZRANGE', KEYS[5], -1, -1, 'WITHSCORES')[2])
    local ms = integer(math.max(math.ceil((last - us) / 1000), 0) + 1)
    if shares_changed then
      redis.call('SET', KEYS[1], '@shared ' .. kind .. permits, 'PX', ms)
    else
      redis.call('PEXPIRE', KEYS[1], ms)
    end
  end
  if not kind and not waiting then
    redis.call('DEL', KEYS[2], KEYS[4], KEYS[5])
    return
  end
  local list = {}
  for addr in pairs(suspects) do
    if #list < CHUNK then list[#list + 1] = 's:' .. addr end
  end
  for addr, p in pairs(unclaimed) do list[#list + 1] = 'p:' .. addr .. ':' .. integer(p.token) .. ':' .. integer(p.count) end
  if asked then list[#list + 1] = 'a:' .. asked .. ':' .. integer(asked_at) end
  if missed > 0 then list[#list + 1] = 'u:' .. integer(missed) end
  if informed then list[#list + 1] = 'i:' .. integer(informed) end
  local text = table.concat(list, ' ')
  if text == '' then
    if known ~= '' then read('HDEL', KEYS[4], 's') end
  elseif text ~= known then
    redis.call('HSET', KEYS[4], 's', text)
  end
  local ms = integer(2 * math.max(math.ceil((last - us) / 1000), 0) + 60000)
  if waiting then redis.call('PEXPIRE', KEYS[2], ms) end
  if text ~= '' or kind == 'r' or kind == 'p' then redis.call('PEXPIRE', KEYS[4], ms) end
  if kind == 'r' or kind == 'p' then redis.call('PEXPIRE', KEYS[5], ms) end
end

-- pass returns the field Pass of an answer, in ms.
local function pass() return more and -1 or shortest or 0 end

local function send()
  for _, h in ipairs(hints) do publish(h[1], h[2]) end
end

-- complete is the end of an operation that is no ACQUIRE.
local function complete()
  admit()
  inform()
  save()
  send()
end

-- release removes a holder of the whole key. DEL is allowed when memory is exhausted, and then so is each write after it.
local function release()
  redis.call('DEL', KEYS[1])
  if holder_addr then unclaimed[holder_addr] = nil end
  kind, value, holder, holder_addr, finish = nil, false, nil, nil, nil
  forget_first()
end

-- set_finish and set_end set the end of a lease; without exactly it does not get earlier.
local function set_finish(at, exactly)
  finish = exactly and at or math.max(finish, at)
  redis.call('PEXPIRE', KEYS[1], integer(left_of(finish)))
  forget_first()
end

local function set_end(owner, was, at, exactly)
  redis.call('ZADD', KEYS[5], integer(exactly and at or math.max(was, at)), owner)
  forget_first()
end
