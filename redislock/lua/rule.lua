-- The steps of every operation.

local noted, noted_end -- the watcher, and the end of the first lease, before the operation
local more = false     -- CHUNK waiters or holders were handled, and there may be more
local sender           -- of an Acquire

local function next_waiter()
  if not kind then return nil end
  local _, addr = parse_owner(first() or '')
  for i = 1, INFORMED do
    local member = waiter(i)
    if not member then break end
    local _, other = parse_owner(member)
    if other ~= addr then return member end
  end
  return waiter(1)
end

local function watcher()
  return not is_unclaimed(first() or '') and next_waiter() or nil
end

-- begin removes what has ended, notes the watcher, and records that a request of process addr has arrived.
local function begin(addr)
  local ended = false
  if kind == 'r' or kind == 'p' then
    local over = read('ZRANGEBYSCORE', KEYS[5], '-inf', integer(us), 'LIMIT', 0, CHUNK) or {}
    for _, owner in ipairs(over) do
      local _, was, process = drop(owner)
      if was then suspects[process], lapsed = true, true end
    end
    more = #over == CHUNK
    ended = #over > 0
    if ended or (read('ZCARD', KEYS[5]) or 0) == 0 then gone() end
  else
    for process, p in pairs(unclaimed) do
      if process ~= holder_addr or not is_unclaimed(value) then
        suspects[process], lapsed, unclaimed[process] = true, true, nil
      end
    end
  end
  if not kind and not waiter(1) then
    suspects, unclaimed, asked, lapsed, informed = {}, {}, nil, false, nil
  end
  if kind and not ended then
    noted = watcher()
    noted_end = select(2, first())
  end
  if addr then
    if unclaimed[addr] then unclaimed[addr], lapsed = nil, false end
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
  w.lease = own and w.ttl or math.min(w.ttl, lapsed and SHORT_PROVISIONAL_TTL or PROVISIONAL_TTL)
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
  local token = math.max(last_token() + 1, least)
  local messages, order, records, ends = {}, {}, {}, {}
  keep_token(integer(token + #granted - 1))
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
    redis.call('SET', KEYS[1], value, 'PXAT', integer(math.ceil(us / 1000) + w.lease))
  else
    if not was then
      redis.call('DEL', KEYS[4], KEYS[5])
      known = ''
    end
    redis.call('HSET', KEYS[4], unpack(records))
    redis.call('ZADD', KEYS[5], unpack(ends))
    value, shares_changed = true, true
  end
  first_end = nil
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
  local was, removed, i = kind, {}, 1
  local freed = false
  while true do
    if i > CHUNK then
      more = true
      break
    end
    local member = waiter(i)
    if not member then
      freed = true
      break
    end
    local w = parse_waiter(member)
    if not w then -- written by another program
    elseif suspects[w.addr] then
      dismiss(w)
    elseif w.addr ~= sender and not reachable(w.addr) then -- dead
    elseif w.weight and not storable() then
      dismiss(w) -- it asks, and the answer names the key of another type
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
    local rest = {}
    for n = i, #head do rest[#rest + 1] = head[n] end
    read('ZREM', KEYS[2], unpack(removed))
    head = rest
  end
  if self and not mine and not waits and freed and fits(self.weight, self.capacity) and not self.holds then grant(self, true) end
  if #granted > 0 then apply(was) end
end

-- inform decides which waiters are to know the end of the first lease.
local function inform(self, leaves)
  local now = next_waiter()
  if not now then return end
  local record, at = first()
  local pushed = is_unclaimed(record)
  local changed = noted
  if not pushed then changed = now ~= noted or at < noted_end - INFORM_SLACK end
  local all = shortest and (not informed or informed + INFORM_EVERY <= us) or leaves and pushed
  if not changed and not all then return end
  if all then informed = us end
  local _, addr = parse_owner(record)
  local seen = {}
  if addr then seen[addr] = true end
  for i = 1, all and INFORMED or 1 do
    local member = now
    if all then member = waiter(i) end
    if not member then break end
    local owner, to = parse_owner(member)
    if owner and owner ~= self and (changed and member == now or all and not seen[to]) then
      hint(to, 'h ' .. owner .. ' ' .. integer(math.max(left_of(at), 0))) -- behind a foreign holder it asks at once
    end
    if to then seen[to] = true end
  end
end

-- save writes what has changed: the marker of shares, what is known of processes, and how long the keys are kept.
local function save()
  local waiting = waiter(1)
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
    remove(KEYS[2], KEYS[4], KEYS[5])
    return
  end
  local list = {}
  for addr in pairs(suspects) do
    if #list < CHUNK then list[#list + 1] = 's:' .. addr end
  end
  for addr, p in pairs(unclaimed) do list[#list + 1] = 'p:' .. addr .. ':' .. integer(p.token) .. ':' .. integer(p.count) end
  if asked then list[#list + 1] = 'a:' .. asked .. ':' .. integer(asked_at) end
  if lapsed then list[#list + 1] = 'u:1' end
  if informed then list[#list + 1] = 'i:' .. integer(informed) end
  local text = table.concat(list, ' ')
  if text == '' then
    if known ~= '' then read('HDEL', KEYS[4], 's') end
  elseif text ~= known then
    read('HSET', KEYS[4], 's', text)
  end
  local ms = integer(2 * math.max(math.ceil((last - us) / 1000), 0) + 60000)
  if waiting then redis.call('PEXPIRE', KEYS[2], ms) end
  if (text ~= '' or kind == 'r' or kind == 'p') and not foreign[KEYS[4]] then redis.call('PEXPIRE', KEYS[4], ms) end
  if kind == 'r' or kind == 'p' then redis.call('PEXPIRE', KEYS[5], ms) end
end

-- pass returns the field Pass of an answer, in ms.
local function pass() return more and -1 or shortest or 0 end

local function send()
  for _, h in ipairs(hints) do publish(h[1], h[2]) end
end

-- complete is the end of an operation that is no ACQUIRE.
local function complete(leaves)
  admit()
  inform(nil, leaves)
  save()
  send()
end

-- release removes a holder of the whole key. DEL is allowed when memory is exhausted, and then so is each write after it.
local function release()
  redis.call('DEL', KEYS[1])
  if holder_addr then unclaimed[holder_addr] = nil end
  kind, value, holder, holder_addr, finish = nil, false, nil, nil, nil
  first_end = nil
end

-- set_finish and set_end set the end of a lease; without exactly it does not get earlier.
local function set_finish(at, exactly)
  finish = exactly and at or math.max(finish, at)
  redis.call('PEXPIRE', KEYS[1], integer(left_of(finish)))
  first_end = nil
end

local function set_end(owner, was, at, exactly)
  redis.call('ZADD', KEYS[5], integer(exactly and at or math.max(was, at)), owner)
  first_end = nil
end
