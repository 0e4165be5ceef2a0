-- Shares of a lock: readers and permits. KEYS are those of the prelude; a request about a share also declares the two
-- keys below. The value of a shared lock is '@shared <capacity> <permits>': the capacity of readers is 0, and permits has
-- a digit for each permit, 1 if it is held. The key expires with the last lease, so it excludes clients that use SET NX.
-- {lock}:h is a hash, owner id -> record of the holder; {lock}:e a sorted set, owner id -> end of its lease in us. Both
-- mean nothing while the lock has another value: who deletes the lock ends all shares.
-- A record is the value of an exclusive holder with ':<weight>/<capacity>:<slots>' after the token. The slots are ranges:
-- 0-1,4-4. A waiter has ':<weight>/<capacity>' after its ttl.
-- '/<capacity>' is a member of the queue with the score NOTE since a share with that capacity began to wait. '?<owner id>'
-- is one while the first waiter is asked whether it is alive (ask.lua in redislock).
if sharing then
  local HOLDERS, ENDS, NOTE = '{' .. KEYS[1] .. '}:h', '{' .. KEYS[1] .. '}:e', -1000
  local S, capacity, permits, count = {unclaimed = 0}, 0, '', 0
  local changed, more = false, false -- more: CHUNK waiters or holders were removed, and there may be more
  if shared then
    local c, p = string.match(redis.call('GET', KEYS[1]), '^@shared (%d+) ([01]*)$')
    capacity, permits, count = tonumber(c) or 0, p or '', read('ZCARD', ENDS) or 0
  end

  -- despite_memory is a write that changes nothing and is allowed when memory is exhausted, and so is each write after it.
  local function despite_memory() redis.call('ZREM', ENDS, '') end

  local function left(at) return math.max(math.ceil((at - us) / 1000), 0) end

  -- first_end returns the holder whose lease ends first, and when.
  local function first_end()
    local first = redis.call('ZRANGE', ENDS, 0, 0, 'WITHSCORES')
    return first[1], tonumber(first[2])
  end

  -- record_of returns the record of a holder whose lease has not ended, and the end.
  local function record_of(owner)
    local at = shared and tonumber(read('ZSCORE', ENDS, owner) or nil)
    if at and at > us then
      local record = redis.call('HGET', HOLDERS, owner)
      if record then return record, at end
    end
  end

  local function mark(slots, digit)
    for a, b in string.gmatch(slots or '', '(%d+)%-(%d+)') do
      permits = string.sub(permits, 1, a) .. string.rep(digit, b - a + 1) .. string.sub(permits, b + 2)
    end
  end

  -- take returns the lowest permits that are free, which are enough.
  local function take(weight)
    local ranges, from = {}, 1
    while weight > 0 do
      local a, b = string.find(permits, '0+', from)
      b = math.min(b, a + weight - 1)
      ranges[#ranges + 1] = integer(a - 1) .. '-' .. integer(b - 1)
      weight, from = weight - (b - a + 1), b + 1
    end
    local slots = table.concat(ranges, ',')
    mark(slots, '1')
    return slots
  end

  local function slots_of(record) return string.match(record, '^%S+ %d+:%d+/%d+:([%d,-]*)') end

  -- drop removes a holder. Without its record the server has evicted the records: the permits are counted again.
  local function drop(owner)
    local record = redis.call('HGET', HOLDERS, owner)
    redis.call('ZREM', ENDS, owner)
    redis.call('HDEL', HOLDERS, owner)
    count, changed = count - 1, true
    if record then
      mark(slots_of(record), '0')
    else
      permits = string.rep('0', capacity)
      for _, other in ipairs(redis.call('HVALS', HOLDERS)) do mark(slots_of(other), '1') end
    end
    return select(2, parse_owner(record or ''))
  end

  -- expire removes the holders whose leases have ended. A process that did not claim its grant is suspect.
  local function expire()
    local over = redis.call('ZRANGEBYSCORE', ENDS, '-inf', integer(us), 'LIMIT', 0, CHUNK)
    for _, owner in ipairs(over) do
      local addr = drop(owner)
      local pushed = addr and tonumber(read('ZSCORE', KEYS[2], addr) or 0) or 0
      if pushed < 0 and pushed >= SUSPECT / 2 then
        redis.call('ZADD', KEYS[2], SUSPECT, addr)
        S.unclaimed = math.max(S.unclaimed, math.min(-pushed, 9))
      end
    end
    more = #over == CHUNK
  end

  -- keep makes the keys last as long as the last lease.
  local function keep()
    local last = redis.call('ZRANGE', ENDS, -1, -1, 'WITHSCORES')[2]
    local ms = left(tonumber(last)) + 1
    if changed then
      redis.call('SET', KEYS[1], '@shared ' .. integer(capacity) .. ' ' .. permits, 'PX', integer(ms))
    else
      redis.call('PEXPIRE', KEYS[1], integer(ms))
    end
    redis.call('PEXPIRE', HOLDERS, integer(ms + 1000))
    redis.call('PEXPIRE', ENDS, integer(ms + 1000))
  end

  -- notify sends the remaining lease of the holder that ends first to the watcher.
  local function notify()
    local owner, at = first_end()
    notify_watcher(select(2, parse_owner(redis.call('HGET', HOLDERS, owner) or '')), left(at))
  end

  -- clear frees a lock without holders.
  local function clear()
    redis.call('DEL', KEYS[1], HOLDERS, ENDS)
    shared, value = false, false
  end

  local function numbers(share)
    local weight, c = string.match(share, '^:?(%d+)/(%d+)$')
    return tonumber(weight), tonumber(c)
  end

  -- fits reports whether a share can be held beside the holders.
  local function fits(weight, c)
    if count == 0 then return true end
    if c ~= capacity then return false end
    return c == 0 or select(2, string.gsub(permits, '0', '')) >= weight
  end

  -- candidates returns the waiters at the head of the queue that are granted now, in their order, and the members to
  -- remove: those, and the dead ones before them. It takes their permits.
  local function candidates()
    local members, granted, gone = waiters(CHUNK), {}, {}
    local all, own = #members < CHUNK, nil -- own: self, if it is not in the queue
    if all and wanted and not read('ZSCORE', KEYS[2], wanted) then
      own = wanted
      members[#members + 1] = own
    end
    for _, member in ipairs(members) do
      if grantable(member) then
        local ttl, share, meta = parse_member(member)
        local weight, c = numbers(share)
        if not weight or not fits(weight, c) then return granted, gone end
        if count == 0 then capacity, permits = c, string.rep('0', c) end
        count = count + 1
        granted[#granted + 1] = {
          address = string.sub(member, 1, 50), ttl = tonumber(ttl), share = share, meta = meta,
          slots = c > 0 and take(weight) or '', unexpected = member == own and 1 or 0,
        }
      end
      if member ~= own then gone[#gone + 1] = member end
    end
    more = more or not all
    return granted, gone
  end

  -- record writes the holders, with tokens in their order, and returns how long the shortest pushed grant is. Each
  -- process gets one message with all its grants.
  local function record(granted, before)
    local token = math.max(last_token() + 1, us)
    redis.call('SET', KEYS[3], integer(token + #granted - 1))
    if not shared then redis.call('DEL', HOLDERS, ENDS) end
    local records, ends, messages, order, shortest = {}, {}, {}, {}, nil
    for _, g in ipairs(granted) do
      local owner, addr = parse_owner(g.address)
      local ms = owner == self and g.ttl or math.min(g.ttl, math.max(PROVISIONAL_TTL / 4 ^ before, MIN_PROVISIONAL_TTL))
      g.token = integer(token)
      token = token + 1
      records[#records + 1] = owner
      records[#records + 1] = value_of(g.address, g.token .. g.share .. ':' .. g.slots, g.meta)
      ends[#ends + 1] = integer(us + ms * 1000)
      ends[#ends + 1] = owner
      if owner == self then
        S.mine = g
      else
        shortest = math.min(shortest or ms, ms)
        if not messages[addr] then
          messages[addr], order[#order + 1] = {}, addr
        end
        local list = messages[addr]
        list[#list + 1] = owner .. ' ' .. g.token .. ' ' .. integer(ms) .. ' ' .. (g.slots ~= '' and g.slots or '-') .. ' '
      end
    end
    redis.call('HSET', HOLDERS, unpack(records))
    redis.call('ZADD', ENDS, unpack(ends))
    keep()
    shared, value = true, true
    for _, addr in ipairs(order) do
      redis.call('ZADD', KEYS[2], -1 - before, addr)
      publish(addr, 's ' .. integer(us) .. ' ' .. #messages[addr] .. ' ' .. table.concat(messages[addr]) .. KEYS[1])
    end
    if self_addr and S.mine then showed_life(self_addr) end
    if shortest then keep_queue(shortest) end
    return shortest
  end

  -- admit grants the lock to the shares at the head of the queue, as long as they fit. It returns an owner that it
  -- was granted to (self, if that is one of them), and the length of the shortest pushed grant, -1 if the client
  -- sends ADVANCE at once; or AGAIN.
  function S.admit(before)
    before = before or S.unclaimed
    local granted, gone = candidates()
    if #gone > 0 then redis.call('ZREM', KEYS[2], unpack(gone)) end
    local ms
    changed = changed or #granted > 0
    if #granted > 0 then
      ms = record(granted, before)
    elseif changed then
      keep()
    end
    if changed or #gone > 0 then notify() end
    if more and #granted == 0 then return AGAIN end
    if #granted == 0 then return nil end
    return S.mine and self or string.sub(granted[1].address, 1, 32), nil, more and -1 or ms
  end

  -- advance admits waiters after holders have gone. It returns the length of the shortest pushed grant, 0 if there
  -- is none, -1 if the client sends ADVANCE at once.
  local function advance()
    local owner, ms, _
    if count > 0 then
      owner, _, ms = S.admit()
    else
      clear()
      owner, _, ms = grant_next(false, S.unclaimed)
      if not owner then read('ZREMRANGEBYSCORE', KEYS[2], '-inf', '(0') end
    end
    return integer(owner == AGAIN and -1 or ms or 0)
  end

  -- other_capacity returns the capacity of the shares that hold the lock or wait for it if it differs.
  local function other_capacity(c)
    if shared then return capacity ~= c and capacity end
    local noted = (read('ZRANGEBYSCORE', KEYS[2], NOTE, NOTE) or {})[1]
    if not noted or noted == '/' .. integer(c) then return nil end
    for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '0', '+inf')) do
      local weight, other = numbers(select(2, parse_member(member)) or '')
      if weight and other ~= c and parse_owner(member) ~= self and grantable(member) then return other end
    end
    redis.call('ZREM', KEYS[2], noted)
  end

  -- first returns the record of the holder that ends first, and what is left of its lease.
  function S.first()
    local owner, at = first_end()
    return redis.call('HGET', HOLDERS, owner) or '', left(at)
  end

  -- begin begins an ACQUIRE. It returns its reply if it is decided.
  function S.begin(owner, addr, ttl, share)
    if shared then
      expire()
      local record, at = record_of(owner)
      if record then
        despite_memory()
        redis.call('ZADD', ENDS, integer(math.max(at, us + ttl * 1000)), owner)
        showed_life(addr)
        wanted, changed = nil, true
        local ms = advance()
        local token, slots = string.match(record, '^%S+ (%d+):%d+/%d+:([%d,-]*)')
        return {1, integer(us), integer(ttl), token, 1, slots, ms}
      end
      if count == 0 then clear() end
    end
    if not share then return end
    local c = select(2, numbers(share))
    local other = other_capacity(c)
    if other then
      wanted = nil
      return {-7, integer(us), integer(other), changed and advance() or '0'}
    end
  end

  -- granted returns the reply of an ACQUIRE that was granted a share.
  function S.granted(ms)
    return {1, integer(us), integer(S.mine.ttl), S.mine.token, S.mine.unexpected, S.mine.slots, integer(ms or 0)}
  end

  -- note notes the capacity of a share that begins to wait.
  function S.note(share)
    redis.call('ZREMRANGEBYSCORE', KEYS[2], NOTE, NOTE)
    redis.call('ZADD', KEYS[2], NOTE, '/' .. integer(select(2, numbers(share))))
  end

  -- forget removes the note when the last waiter has left.
  function S.forget()
    if not waiters(1)[1] then redis.call('ZREMRANGEBYSCORE', KEYS[2], NOTE, NOTE) end
  end

  -- renew extends the lease of a holder, or sets it to exactly ttl. alone: KEYS[2] is not the queue.
  function S.renew(owner, ttl, exactly, alone)
    local record, at = record_of(owner)
    if not record then return {0, integer(us)} end
    local was, to = first_end(), us + ttl * 1000
    despite_memory()
    redis.call('ZADD', ENDS, integer(exactly and to or math.max(at, to)), owner)
    keep()
    if alone then return {1, integer(us)} end
    showed_life(select(2, parse_owner(record)))
    if was == owner or first_end() == owner then notify() end
    return {1, integer(us)}
  end

  -- leave removes the share of an owner, if it holds one. removed: a waiter has left the queue.
  function S.leave(owner, removed)
    local held = record_of(owner)
    if not held and not removed then return {0, integer(us)} end
    if held then showed_life(drop(owner)) end
    expire()
    changed = true
    return {held and 1 or 0, integer(us), advance()}
  end

  -- look removes the holders whose leases have ended. It returns how long to wait for a grant that is not claimed.
  function S.look()
    expire()
    local ms = advance()
    if ms == '0' and shared and #(read('ZRANGEBYSCORE', KEYS[2], integer(SUSPECT / 2), '-1', 'LIMIT', 0, 1) or {}) > 0 then
      ms = integer(math.max(left(select(2, first_end())), 1))
    end
    return {1, integer(us), ms}
  end

  -- holders returns record and remaining lease of each holder.
  function S.holders()
    local list, records, ends = {}, redis.call('HGETALL', HOLDERS), redis.call('ZRANGE', ENDS, 0, -1, 'WITHSCORES')
    local at = {}
    for i = 1, #ends, 2 do at[ends[i]] = tonumber(ends[i + 1]) end
    for i = 1, #records, 2 do
      local stop = at[records[i]]
      if stop and stop > us then
        list[#list + 1] = records[i + 1]
        list[#list + 1] = integer(left(stop))
      end
    end
    return list
  end

  -- end_of ends the share of an owner, or all if it is ''.
  function S.end_of(owner)
    local list = S.holders()
    local first, found, number
    for i = 1, #list, 2 do
      local token = tonumber(string.match(list[i], '^%S+ (%d+)'))
      if (owner == '' or parse_owner(list[i]) == owner) and (not found or token < number) then found, number = i, token end
      if not first then first = i end
    end
    local function reply(status, i, ms)
      return {status, integer(us), list[i + 1], string.match(list[i], '^%S+ (%d+)'), list[i], ms}
    end
    if first and not found then return reply(2, first) end
    expire()
    for i = 1, #list, 2 do
      local o, addr = parse_owner(list[i])
      if owner == '' or o == owner then
        drop(o)
        showed_life(addr)
        publish(addr, subscribed(addr) and 'l ' .. o or 'x')
      end
    end
    changed = true
    local ms = advance()
    if not found then return {0, integer(us), ms} end
    return reply(1, found, ms)
  end

  function S.is_reader(owner)
    if not record_of(owner) then return {0, integer(us)} end
    keep() -- a WAIT after it waits for the current state
    return {1, integer(us)}
  end

  -- downgrade makes the exclusive holder a reader.
  function S.downgrade()
    local other = other_capacity(0)
    if other then return {-7, integer(us), integer(other)} end
    local at = us + math.max(redis.call('PTTL', KEYS[1]), 1) * 1000
    local head, meta = string.match(redis.call('GET', KEYS[1]), '^(%S+ %d+)(.*)$')
    redis.call('DEL', HOLDERS, ENDS)
    redis.call('HSET', HOLDERS, holder, head .. ':1/0:' .. meta)
    redis.call('ZADD', ENDS, integer(at), holder)
    showed_life(holder_addr)
    shared, capacity, permits, count, changed = true, 0, '', 1, true
    return {1, integer(us), advance()}
  end

  shares = S
end

