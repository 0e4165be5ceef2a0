-- Follows the prelude in the scripts that may grant, at each of several masters (Redlock).
-- KEYS: 5 the node's marker. The last of ARGV: how long, in ms, a node that may have lost grants
-- has no vote; '1' if nodes are durable; the set of nodes; the id of the last quarantine that the
-- client knows, and how much of it has passed, in ms, by the client's clock; how long the counter is
-- kept after the lease, in ms; a token, a ticket or 0.
local DELAY, DURABLE, SET = tonumber(ARGV[#ARGV - 6]), ARGV[#ARGV - 5] == '1', ARGV[#ARGV - 4]
local KNOWN, PASSED, RETENTION, TOKEN = ARGV[#ARGV - 3], tonumber(ARGV[#ARGV - 2]), tonumber(ARGV[#ARGV - 1]), tonumber(ARGV[#ARGV])

local function run_id()
  if DURABLE then return '' end
  return string.match(redis.call('INFO', 'server'), 'run_id:(%x+)') or ''
end

-- mark writes the marker: the run of the server, the set of nodes, the id of the quarantine, and
-- how much of it has passed.
local function mark(id, passed)
  redis.call('SET', KEYS[5], run_id() .. ' ' .. SET .. ' ' .. id .. ' ' .. integer(passed))
end

-- refusal returns the reply of a node without a vote, else nil. A node has no vote for clients of
-- another set, and in its quarantine. A quarantine begins when the marker is missing, because the
-- node lost its data, or has another run, because the node may have lost a part. Clients count it:
-- the clock of a node that has just started may be wrong, and be stepped later.
local refused
local function refusal()
  if refused ~= nil then return refused or nil end
  local run, set, id, passed = string.match(read('GET', KEYS[5]) or '', '^(%x*) (%x+) (%d+) (%d+)$')
  if run and set ~= SET then
    refused = {-5, integer(us)}
    return refused
  end
  if not run or (not DURABLE and run ~= run_id()) then
    id, passed = integer(us), 0
    mark(id, passed)
  end
  passed = tonumber(passed)
  if id == KNOWN and PASSED > passed and passed < DELAY then
    passed = PASSED
    mark(id, passed)
  end
  refused = passed < DELAY and {-4, integer(us), integer(DELAY - passed), id}
  return refused or nil
end

-- keep_token writes the counter.
local function keep_token(call, token, ms)
  if RETENTION == 0 then return call('SET', KEYS[3], integer(token)) end
  return call('SET', KEYS[3], integer(token), 'PX', integer(ms + RETENTION))
end

-- carry raises the counter to a token that was granted. It ignores a full memory.
local function carry(ms)
  if TOKEN > last_token() then keep_token(redis.pcall, TOKEN, ms) end
end

-- A client sends the same token to all nodes, because their clocks differ.
next_token = function(ms)
  local n = last_token()
  local tok = math.max(n + 1, TOKEN + 1)
  if n == 0 and TOKEN == 0 then tok = us end
  keep_token(redis.call, tok, ms)
  return integer(tok)
end

-- A node without a vote does not hand over.
local hand_over = grant_next
grant_next = function(expired)
  if refusal() then return nil end
  return hand_over(expired)
end
