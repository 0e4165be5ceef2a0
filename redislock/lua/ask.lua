-- The first waiter does not fit beside the shares that hold the lock. If its process was stopped, its connection does not
-- show that. A share behind it asks: '?<owner id>' is a member of the queue from then on until the first waiter polls, with
-- the time in ms, negative, as its score. There is at most one.
local MARKS = '(-1000000' -- the scores of these members are below this

-- first_of_queue returns the first waiter and its process.
local function first_of_queue()
  local member = waiters(1)[1]
  if member then return parse_owner(member) end
end

-- unanswered makes the process of the first waiter suspect if that waiter was asked and has not polled for PROVISIONAL_TTL.
-- A question that is older than three times that is of a share that has gone.
local function unanswered()
  local owner, addr = first_of_queue()
  local asked = owner and tonumber(read('ZSCORE', KEYS[2], '?' .. owner) or nil)
  local age = asked and us / 1000 + asked or 0
  if addr == self_addr or age < PROVISIONAL_TTL or age > 3 * PROVISIONAL_TTL then return end
  redis.call('ZREM', KEYS[2], '?' .. owner)
  redis.call('ZADD', KEYS[2], SUSPECT, addr)
end

-- ask asks the first waiter, unless it was asked before. It returns 1 if the first waiter is of another process.
local function ask()
  local owner, addr = first_of_queue()
  if not owner or addr == self_addr then return 0 end
  local asked = tonumber(read('ZSCORE', KEYS[2], '?' .. owner) or nil)
  local age = asked and us / 1000 + asked or -1
  if age < 0 or age > 3 * PROVISIONAL_TTL then
    redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', MARKS) -- allowed when memory is exhausted, and so is the next write
    redis.call('ZADD', KEYS[2], integer(-us / 1000), '?' .. owner)
    publish(addr, 'a ' .. owner .. ' ' .. KEYS[1])
  end
  return 1
end
