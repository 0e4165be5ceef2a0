-- Common part of every script. Processes of different versions share keys, values and messages.
-- KEYS: 1 lock, 2 queue, 3 fence counter, 4 tombstone of the attempt
-- ARGV: 1 prefix of the channel of a process, 2 the attempt, then the arguments of the script
--
-- An owner address is <owner id>@<process address>: 32 hex digits; 'p' or 's' and 16 hex digits.
-- The value of a lock is <owner address> <ticket>[ <metadata>]. A waiter is a member of the queue,
-- <owner address> <ttl in ms> <ticket>[ <metadata>], with its ticket as its score. A release writes the next
-- value from it.
--
-- A process address is a member of the queue with a negative score from a grant that was pushed to the
-- process until a request of the process about this lock: from -1 on while the grant may be claimed (-n
-- if n - 1 grants before it were not claimed), SUSPECT if the grant has expired. The waiters of a suspect
-- process are removed when they come first.
local t = redis.call('TIME')
local us = tonumber(t[1]) * 1000000 + tonumber(t[2])
local PROVISIONAL_TTL, MIN_PROVISIONAL_TTL, SUSPECT = 3000, 250, -100
local CHUNK, LOOK = 100, 16 -- waiters that a script removes at most; that it looks at for another process
local AGAIN = -6 -- status: CHUNK waiters were removed, nothing else has changed, and the client repeats the request

-- integer formats a number: tostring(1763000000000000) would be 1.763e+15.
local function integer(x) return string.format('%.0f', x) end

-- parse_owner returns the owner id and the process address of a value or a member.
-- It returns nil for a value of a foreign client.
local function parse_owner(s)
  local owner, addr = string.match(s, '^(%x+)@([ps]%x+)')
  if owner and #owner == 32 and #addr == 17 and (#s == 50 or string.sub(s, 51, 51) == ' ') then return owner, addr end
end

-- read is redis.call. For a key of another type it returns nil and the error.
local function read(...)
  local r = redis.pcall(...)
  if type(r) ~= 'table' or not r.err then return r end
  if string.find(r.err, 'WRONGTYPE', 1, true) then return nil, r.err end
  return redis.call(...) -- raises the error
end

-- waiters returns the first n waiters. A key of another type in the place of the queue is no
-- queue, and must not keep a lock from being freed.
local function waiters(n) return read('ZRANGEBYSCORE', KEYS[2], '0', '+inf', 'LIMIT', 0, n) or {} end

-- showed_life records that a request of process addr has arrived: its grant is claimed, and it is not suspect.
local function showed_life(addr) read('ZREM', KEYS[2], addr) end

-- subscribed reports whether process addr is subscribed on this server.
local function subscribed(addr) return redis.call('PUBSUB', 'NUMSUB', ARGV[1] .. addr)[2] > 0 end

local function publish(addr, msg) redis.call('PUBLISH', ARGV[1] .. addr, msg) end

-- self and self_addr are the attempt that sent an ACQUIRE, and its process, which is alive.
local self, self_addr

-- reachable reports whether a waiter of process addr may be granted the key. If not, it
-- publishes 'x' (resubscribe) to it once: a subscriber on a replica receives it too.
local answers = {}
local function reachable(addr)
  if answers[addr] == nil then
    answers[addr] = subscribed(addr) and (addr == self_addr or read('ZSCORE', KEYS[2], addr) ~= integer(SUSPECT))
    if not answers[addr] then publish(addr, 'x') end
  end
  return answers[addr]
end

-- grantable reports whether a member of the queue is self or a waiter whose process is reachable.
local function grantable(member)
  local owner, addr = parse_owner(member)
  return owner and (owner == self or string.find(member, '^ %d+', 51) and reachable(addr))
end

-- first_waiter returns the first waiter whose process is reachable, and removes those before
-- it. It returns nil if there is none. It returns AGAIN after it removed CHUNK waiters, because
-- a script stops the server for as long as it runs.
local function first_waiter()
  local first, dead = waiters(1)[1], {}
  if not first or grantable(first) then return first end
  first = nil
  for _, member in ipairs(waiters(CHUNK)) do
    if grantable(member) then
      first = member
      break
    end
    dead[#dead + 1] = member
  end
  redis.call('ZREM', KEYS[2], unpack(dead))
  return #dead == CHUNK and AGAIN or first
end

local function keep_queue(left)
  local ms = left * 2 + 60000
  if redis.call('PTTL', KEYS[2]) < ms then redis.call('PEXPIRE', KEYS[2], integer(ms)) end
end

-- watcher returns the waiter that polls when the lease of a holder of process addr ends: the
-- first waiter of another process, because a process stops with all its waiters; else the first.
local function watcher(addr)
  local first = first_waiter()
  if not first or first == AGAIN then return nil end
  if select(2, parse_owner(first)) ~= addr then return first end
  for _, member in ipairs(waiters(LOOK)) do
    local owner, other = parse_owner(member)
    if owner and other ~= addr and reachable(other) then return member end
  end
  return first
end

-- notify_watcher sends the remaining lease, in ms, to the watcher. Scripts call it after each
-- change of the lease or of the first waiters, so that only the watcher polls when the lease ends.
local function notify_watcher(addr, left)
  local member = watcher(addr)
  if not member then return end
  local owner, to = parse_owner(member)
  publish(to, 'h ' .. owner .. ' ' .. integer(left))
  keep_queue(left)
end

-- last_token returns the fence counter. It returns 0 if the counter is missing or is no
-- integer below 2^53, up to which a double is exact.
local function last_token()
  local s = read('GET', KEYS[3])
  local n = s and string.match(s, '^%d+$') and tonumber(s) or 0
  return n < 9007199254740991 and n or 0
end

-- next_token raises the fence counter; see quorum.lua.
local next_token

-- value_of returns the value of the lock for a holder with that address, and with that ticket and metadata.
local function value_of(address, meta) return address .. ' ' .. meta end

-- extend never shortens: a late request must not cut a longer lease. It always writes,
-- so that a WAIT after it waits for the current state of the key.
local function extend(ttl)
  local ms = math.max(redis.call('PTTL', KEYS[1]), ttl)
  redis.call('PEXPIRE', KEYS[1], integer(ms))
  return ms
end

-- tombstone refuses late requests of the attempt for ms. DEL comes first: it is allowed
-- when memory is exhausted, and so is each write of a script after its first.
local function tombstone(ms)
  if ms == '0' then return end
  redis.call('DEL', KEYS[4])
  redis.call('SET', KEYS[4], '1', 'PX', ms)
end

-- grant_next grants the key to the first waiter. It returns the owner id, the new value of
-- the key and the length of the provisional grant. If self is first, grant_next removes it from the
-- queue and returns it without the key. If there is no waiter, it returns nil and does not
-- delete the key of a holder that releases. It may return AGAIN. expired: no holder frees the key.
--
-- A provisional grant is shorter after each one before it that was not claimed, so that any
-- number of stopped processes delays the next waiter by a bounded time.
--
-- ZREM comes first because it is allowed when memory is exhausted. The key is written,
-- with an expiry, before its holder is notified: if the script fails in between, a short
-- lease remains. In the other order a waiter would trust a grant that does not exist.
local function grant_next(expired)
  local unclaimed = 0
  if expired then
    local pushed = read('ZRANGEBYSCORE', KEYS[2], integer(SUSPECT / 2), '-1', 'WITHSCORES') or {}
    for i = 1, #pushed, 2 do
      redis.call('ZREM', KEYS[2], pushed[i])
      redis.call('ZADD', KEYS[2], SUSPECT, pushed[i])
      unclaimed = math.min(-tonumber(pushed[i + 1]), 9)
    end
  end
  local member = first_waiter()
  if not member or member == AGAIN then return member end
  local ttl, meta = string.match(string.sub(member, 51), '^ (%d+) ?(.*)$')
  redis.call('ZREM', KEYS[2], member)
  local owner, addr = parse_owner(member)
  if owner == self then return owner end
  local ms = math.min(tonumber(ttl), math.max(PROVISIONAL_TTL / 4 ^ unclaimed, MIN_PROVISIONAL_TTL))
  local token = next_token(tonumber(ttl))
  local granted = value_of(string.sub(member, 1, 50), meta)
  redis.call('SET', KEYS[1], granted, 'PX', integer(ms))
  redis.call('PEXPIREAT', KEYS[1], integer(math.ceil(us / 1000) + ms))
  redis.call('ZADD', KEYS[2], -1 - unclaimed, addr)
  keep_queue(ms)
  publish(addr, 'g ' .. owner .. ' ' .. token .. ' ' .. integer(us + ms * 1000) .. ' ' .. integer(ms) .. ' ' .. KEYS[1])
  notify_watcher(addr, ms)
  return owner, granted, ms
end

-- free frees the key of a holder of process addr or grants it to the next waiter. It returns the
-- length of the provisional grant, 0 if there is none, or nil for AGAIN.
local function free(addr)
  if addr then showed_life(addr) end
  local owner, _, ms = grant_next()
  if owner == AGAIN then return nil end
  if not owner then
    redis.call('DEL', KEYS[1])
    read('ZREMRANGEBYSCORE', KEYS[2], '-inf', '(0')
  end
  return integer(ms or 0)
end

-- value is the start of the value of the lock, long enough to recognise an owner
-- address, or false if the key is free. other_type is the type of a key that is no string.
local value, other_type = read('GETRANGE', KEYS[1], 0, 399), nil
if not value then
  value, other_type = '', redis.call('TYPE', KEYS[1]).ok
elseif value == '' and redis.call('EXISTS', KEYS[1]) == 0 then
  value = false
end
local holder, holder_addr -- of this library, else nil
if value then holder, holder_addr = parse_owner(value) end

-- holder_token returns the token of the holder, 0 for a foreign one. Each lock has its own counter.
local function holder_token() return holder and integer(last_token()) or '0' end
