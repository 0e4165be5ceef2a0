-- Common part of every script. Processes of different versions share keys, values and messages.
-- KEYS: 1 lock, 2 queue, 3 fence counter, 4 tombstone of the attempt
-- ARGV: 1 prefix of the channel of a process, 2 the attempt, then the arguments of the script
--
-- An owner address is <owner id>@<process address>: 32 hex digits; 'p' or 's' and 16 hex digits.
-- The value of a lock is <owner address>[ <metadata>]. A member of the queue is
-- <owner address> <ttl in ms>[ <metadata>], from which a release writes the next holder.
local t = redis.call('TIME')
local us = tonumber(t[1]) * 1000000 + tonumber(t[2])
local PROVISIONAL_TTL, FENCE_TTL = 3000, 86400000

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

-- head returns the first member of the queue. A key of another type in its place is no
-- queue, and must not keep a lock from being freed.
local function head()
  local r = read('ZRANGE', KEYS[2], 0, 0)
  return r and r[1]
end

-- subscribed reports whether process addr is subscribed on this server, and returns the
-- command and the channel that publish to it. A cluster process ('s') has a sharded
-- channel in the slot of the key.
local function subscribed(addr)
  local count, publish, channel = 'NUMSUB', 'PUBLISH', ARGV[1] .. addr
  if string.sub(addr, 1, 1) == 's' then
    count, publish, channel = 'SHARDNUMSUB', 'SPUBLISH', '{' .. KEYS[1] .. '}:@' .. addr
  end
  return redis.call('PUBSUB', count, channel)[2] > 0, publish, channel
end

-- notify publishes msg to process addr. If the process is not subscribed on this
-- server, notify publishes 'x' (resubscribe) instead and returns false: a subscriber on
-- a replica receives it too, and must not read a grant that the next waiter gets.
local function notify(addr, msg)
  local here, publish, channel = subscribed(addr)
  redis.call(publish, channel, here and msg or 'x')
  return here
end

local function keep_queue(left)
  local ms = left * 2 + 60000
  if redis.call('PTTL', KEYS[2]) < ms then redis.call('PEXPIRE', KEYS[2], integer(ms)) end
end

-- notify_head sends the remaining lease, in ms, to the first waiter. It removes waiters
-- whose process is not subscribed. Scripts call it after each change of the lease or of
-- the head of the queue, so that only the head polls when the lease ends.
local function notify_head(left)
  while true do
    local member = head()
    if not member then return end
    local owner, addr = parse_owner(member)
    if owner and notify(addr, 'h ' .. owner .. ' ' .. integer(left)) then return keep_queue(left) end
    redis.call('ZREM', KEYS[2], member)
  end
end

-- last_token returns the fence counter. It returns 0 if the counter is missing or is no
-- integer below 2^53, up to which a double is exact.
local function last_token()
  local s = read('GET', KEYS[3])
  local n = s and string.match(s, '^%d+$') and tonumber(s) or 0
  return n < 9007199254740991 and n or 0
end

-- next_token raises the fence counter. The clock is its lower bound, so that tokens also
-- rise when the counter is lost.
local function next_token(ms)
  local token = math.max(last_token() + 1, us)
  redis.call('SET', KEYS[3], integer(token), 'PX', integer(ms + FENCE_TTL))
  return token
end

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

-- grant_next grants the key to the first waiter whose process is subscribed. It returns
-- the owner id and the new value of the key. If self is first, grant_next removes it
-- from the queue and returns it without the key. If there is no waiter, it returns nil
-- and does not delete the key of a holder that releases.
--
-- ZREM comes first because it is allowed when memory is exhausted. The key is written,
-- with an expiry, before its holder is notified: if the script fails in between, a short
-- lease remains. In the other order a waiter would trust a grant that does not exist.
local function grant_next(self)
  local written = false
  while true do
    local member = head()
    if not member then
      if written then redis.call('DEL', KEYS[1]) end
      return nil
    end
    redis.call('ZREM', KEYS[2], member)
    local owner, addr = parse_owner(member)
    local ttl, meta = string.match(string.sub(member, 51), '^ (%d+) ?(.*)$')
    if owner and ttl then
      if owner == self then
        if written then redis.call('DEL', KEYS[1]) end
        return owner
      end
      local ms = math.min(tonumber(ttl), PROVISIONAL_TTL)
      local token = next_token(tonumber(ttl))
      local value = string.sub(member, 1, 50)
      if meta ~= '' then value = value .. ' ' .. meta end
      redis.call('SET', KEYS[1], value, 'PX', integer(ms))
      redis.call('PEXPIREAT', KEYS[1], integer(math.ceil(us / 1000) + ms))
      local msg = 'g ' .. owner .. ' ' .. integer(token) .. ' ' .. integer(us + ms * 1000) .. ' ' .. integer(ms) .. ' ' .. KEYS[1]
      if notify(addr, msg) then
        notify_head(ms)
        return owner, value
      end
      written = true
    end
  end
end

-- value is the start of the value of the lock, long enough to recognise an owner
-- address, or false if the key is free. other_type is the type of a key that is no string.
local value, other_type = read('GETRANGE', KEYS[1], 0, 399), nil
if not value then
  value, other_type = '', redis.call('TYPE', KEYS[1]).ok
elseif value == '' and redis.call('EXISTS', KEYS[1]) == 0 then
  value = false
end
