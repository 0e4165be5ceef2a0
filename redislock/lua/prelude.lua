-- Put before every script of this folder.
-- KEYS: 1 the lock, 2 its queue, 3 its fence counter, 4 the attempt's tombstone
-- ARGV: 1 what a process's channel begins with, 2 the attempt, then the script's own
-- A party is <owner>@<address>: 32 hex digits, and p or s with 16 hex digits.
-- The lock's value is <party>[ <metadata>], a member of the queue is
-- <party> <ttl in ms>[ <metadata>], so that whoever releases can write the next
-- holder without asking.
local t = redis.call('TIME')
local us = tonumber(t[1]) * 1000000 + tonumber(t[2])
local CLAIM, KEEP = 3000, 86400000

-- tostring(1763000000000000) would be 1.763e+15
local function S(x) return string.format('%.0f', x) end

-- owner and address of a value or member of ours; nothing for a foreign one
local function party(s)
  local o, a = string.match(s, '^(%x+)@([ps]%x+)')
  if o and #o == 32 and #a == 17 and (#s == 50 or string.sub(s, 51, 51) == ' ') then return o, a end
end

-- read is redis.call, and tells nothing but its type's error of a key of another type
local function read(...)
  local r = redis.pcall(...)
  if type(r) ~= 'table' or not r.err then return r end
  if string.find(r.err, 'WRONGTYPE', 1, true) then return nil, r.err end
  return redis.call(...) -- raises it
end

-- first is the head of the queue. What else may lie under its key is no queue, and
-- must not keep a lock from being freed.
local function first()
  local r = read('ZRANGE', KEYS[2], 0, 0)
  return r and r[1]
end

-- listens is whether a process does so at this server, how to tell it, and where
local function listens(a)
  local kind, publish, c = 'NUMSUB', 'PUBLISH', ARGV[1] .. a
  if string.sub(a, 1, 1) == 's' then kind, publish, c = 'SHARDNUMSUB', 'SPUBLISH', '{' .. KEYS[1] .. '}:@' .. a end
  return redis.call('PUBSUB', kind, c)[2] > 0, publish, c
end

-- tell sends to a process, and is false if that does not listen at this server. What
-- is published also reaches who listens at a replica, and the replica was the master
-- before: such a process is not counted, must never read a grant that is then given
-- to another, and is told instead that it is passed over.
local function tell(a, msg)
  local here, publish, c = listens(a)
  redis.call(publish, c, here and msg or 'x')
  return here
end

local function keep_queue(left)
  local ms = left * 2 + 60000
  if redis.call('PTTL', KEYS[2]) < ms then redis.call('PEXPIRE', KEYS[2], S(ms)) end
end

-- Invariant: the first in the queue knows when the holder's lease ends, so that
-- it alone asks then. Called when the lease or the first in the queue changed.
local function tell_head(left)
  while true do
    local m = first()
    if not m then return end
    local o, a = party(m)
    if o and tell(a, 'h ' .. o .. ' ' .. S(left)) then return keep_queue(left) end
    redis.call('ZREM', KEYS[2], m)
  end
end

-- last is the counter; 0 if it is lost, or if somebody left there what cannot be
-- counted on (a double is exact below 2^53).
local function last()
  local s = read('GET', KEYS[3])
  local n = s and string.match(s, '^%d+$') and tonumber(s) or 0
  return n < 9007199254740991 and n or 0
end

-- The counter is seeded by the clock, so that its loss does not send it back.
local function raise(ms)
  local tok = math.max(last() + 1, us)
  redis.call('SET', KEYS[3], S(tok), 'PX', S(ms + KEEP))
  return tok
end

-- extend never shortens: a request that arrives late must not cut a longer lease. It
-- always writes, so that a WAIT that follows waits for what the key is now.
local function extend(ttl)
  local ms = math.max(redis.call('PTTL', KEYS[1]), ttl)
  redis.call('PEXPIRE', KEYS[1], S(ms))
  return ms
end

-- tombstone refuses late requests. DEL passes when memory is exhausted, and so do
-- the writes of a script that has already written.
local function tombstone(ms)
  if ms == '0' then return end
  redis.call('DEL', KEYS[4])
  redis.call('SET', KEYS[4], '1', 'PX', ms)
end

-- next_holder gives the key to the first waiter whose process listens, and
-- returns its owner and the key's new value. It returns self, taken out of the
-- queue and without the key, when self comes first. Nil: nobody waits, and the
-- key is free. ZREM comes first because it passes when memory is exhausted. The
-- key is written, with an expiry from its first moment, before its holder is told:
-- a script that fails between leaves a short lease, the other way round would
-- leave a holder of nothing.
local function next_holder(self)
  local dead = false
  while true do
    local m = first()
    if not m then
      if dead then redis.call('DEL', KEYS[1]) end
      return nil
    end
    redis.call('ZREM', KEYS[2], m)
    local o, a = party(m)
    local ttl, meta = string.match(string.sub(m, 51), '^ (%d+) ?(.*)$')
    if o and ttl then
      if o == self then
        if dead then redis.call('DEL', KEYS[1]) end
        return o
      end
      local ms = math.min(tonumber(ttl), CLAIM)
      local tok = raise(tonumber(ttl))
      local value = string.sub(m, 1, 50)
      if meta ~= '' then value = value .. ' ' .. meta end
      redis.call('SET', KEYS[1], value, 'PX', S(ms))
      redis.call('PEXPIREAT', KEYS[1], S(math.ceil(us / 1000) + ms))
      if tell(a, 'g ' .. o .. ' ' .. S(tok) .. ' ' .. S(us + ms * 1000) .. ' ' .. S(ms) .. ' ' .. KEYS[1]) then
        tell_head(ms)
        return o, value
      end
      dead = true
    end
  end
end

-- v is the holder, or as much of it as tells ours and a foreign one apart; false if
-- there is none. Under a key of another type sits
-- somebody foreign; kind names the type.
local v, kind = read('GETRANGE', KEYS[1], 0, 399), nil
if not v then
  v, kind = '', redis.call('TYPE', KEYS[1]).ok
elseif v == '' and redis.call('EXISTS', KEYS[1]) == 0 then
  v = false
end
