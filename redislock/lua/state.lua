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
--   u:1                           the last pushed grant has ended unclaimed
--   i:<us>                        when waiters were informed of a pushed grant
local PROVISIONAL_TTL, SHORT_PROVISIONAL_TTL = 3000, 750
local INFORMED, INFORM_EVERY, INFORM_SLACK = 16, 1000000, 20000
local FEW, CHUNK = 4, 100 -- FEW: waiters that are read at first. CHUNK: waiters that a script admits or removes at most
local FOREVER = 2 ^ 62

-- integer formats a number: tostring(1763000000000000) would be 1.763e+15.
local function integer(x) return string.format('%.0f', x) end

-- read is redis.call. For a key of another type it returns nil, and notes the key: it has data of another program.
local foreign = {}
local function read(...)
  local r = redis.pcall(...)
  if type(r) ~= 'table' or not r.err then return r end
  if string.find(r.err, 'WRONGTYPE', 1, true) then
    foreign[select(2, ...)] = true
    return nil
  end
  return redis.call(...) -- raises the error
end

-- wrong_type returns the reply about the first of the keys that is of another type, nil if there is none.
local function wrong_type(...)
  for _, key in ipairs({...}) do
    if foreign[key] then return {-2, us, redis.call('TYPE', key).ok, key} end
  end
end

-- remove is DEL of the keys that are not of another type.
local function remove(...)
  local keys = {}
  for _, key in ipairs({...}) do
    if key == KEYS[5] then read('ZCARD', key) end -- the others have been read
    if not foreign[key] then keys[#keys + 1] = key end
  end
  if keys[1] then redis.call('DEL', unpack(keys)) end
end

-- despite_memory is a write without effect. It is allowed when memory is exhausted, and then so is each write after it.
local function despite_memory() redis.pcall('ZREM', KEYS[2], '') end

local function parse_owner(s)
  local owner, addr = string.match(s, '^(%x+)@([ps]%x+)')
  if owner and #owner == 32 and #addr == 17 and (#s == 50 or string.sub(s, 51, 51) == ' ') then return owner, addr end
end

-- shown returns what an answer has of a value or record: that of another program may be long.
local function shown(record) return parse_owner(record) and record or string.sub(record, 1, 400) end

-- parse_share returns weight and capacity, nil for the whole key.
local function parse_share(s)
  local weight, capacity = string.match(s, '^:?(%d+)/(%d+)$')
  return tonumber(weight), tonumber(capacity)
end

-- parse_waiter returns a member of the queue as a table, nil if it is none.
local function parse_waiter(member)
  local owner, addr, ttl, share, meta = string.match(member, '^(%x+)@([ps]%x+) (%d+)(:?[%d/]*)(.*)$')
  if not owner or #owner ~= 32 or #addr ~= 17 then return nil end
  local weight, capacity
  if share ~= '' then weight, capacity = parse_share(share) end
  return {member = member, owner = owner, addr = addr, ttl = tonumber(ttl), share = share, weight = weight, capacity = capacity, meta = meta}
end

-- value is the value of the lock, false if it is free. kind is that of the holders: nil if there are none, 'x' exclusive
-- or foreign, 'r' readers, 'p' permits.
local value, kind, permits = read('GET', KEYS[1]), nil, ''
local holder, holder_addr, finish -- of kind 'x': the owner, nil if it is foreign, and the end of its lease
if value == nil then value = '' end -- it is of another type
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
local suspects, unclaimed, asked, asked_at, lapsed, informed = {}, {}, nil, nil, false, nil
local state = read('HGET', KEYS[4], 's') or ''
local known = state -- what is stored
for type, text in string.gmatch(state, '(%l):(%S+)') do
  local name, first, second = string.match(text, '^([^:]+):?(%d*):?(%d*)$')
  if type == 's' then suspects[name] = true end
  if type == 'p' then unclaimed[name] = {token = tonumber(first) or 0, count = tonumber(second) or 1} end
  if type == 'a' then asked, asked_at = name, math.min(tonumber(first) or 0, us) end -- the clock may have been set back
  if type == 'u' then lapsed = true end
  if type == 'i' then informed = tonumber(name) end
end
if informed and informed > us then informed = nil end

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

-- waiter returns the waiter in place i of the queue, nil if there are fewer. A key of another type in the place of the queue
-- is no queue, and must not keep a lock from being released.
local head, all_read -- the first waiters, and whether they are all
local function waiter(i)
  if not head or i > #head and not all_read then
    local n = i <= FEW and FEW or i <= INFORMED and INFORMED or CHUNK
    head = read('ZRANGE', KEYS[2], 0, n - 1) or {}
    all_read = #head < n
  end
  return head[i]
end

local hints = {} -- messages that are sent when all is written

local function hint(addr, msg) hints[#hints + 1] = {addr, msg} end
