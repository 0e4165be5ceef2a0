-- Follows the prelude in the scripts that may grant, at each of several masters (Redlock).
-- KEYS: 5 the node's marker. The last of ARGV: how long, in ms, a node that restarted without
-- its data has no vote; '1' if nodes are durable; a token, a ticket or 0.
local DELAY, DURABLE, TOKEN = tonumber(ARGV[#ARGV - 2]), ARGV[#ARGV - 1] == '1', tonumber(ARGV[#ARGV])

local function run_id()
  if DURABLE then return '' end
  return string.match(redis.call('INFO', 'server'), 'run_id:(%x+)') or ''
end

-- quarantine returns how long, in ms, this node has no vote. The marker has the run of the
-- server, and the time since which the node has its data. It is missing if the node lost its
-- data, and has another run if the node may have lost a part.
local remaining
local function quarantine()
  if remaining then return remaining end
  local run = run_id()
  local known, since = string.match(read('GET', KEYS[5]) or '', '^(%x*) (%d+)$')
  if not known or (not DURABLE and known ~= run) then
    since = integer(us)
    redis.call('SET', KEYS[5], run .. ' ' .. since)
  end
  remaining = math.max(0, math.ceil((tonumber(since) + DELAY * 1000 - us) / 1000))
  return remaining
end

-- carry raises the counter to a token that was granted. It ignores a full memory.
local function carry(ms)
  if TOKEN > last_token() then redis.pcall('SET', KEYS[3], integer(TOKEN), 'PX', integer(ms + FENCE_TTL)) end
end

-- A client sends the same token to all nodes, because their clocks differ.
next_token = function(ms)
  local n = last_token()
  local tok = math.max(n + 1, TOKEN + 1)
  if n == 0 and TOKEN == 0 then tok = us end
  redis.call('SET', KEYS[3], integer(tok), 'PX', integer(ms + FENCE_TTL))
  return tok
end

-- A node without a vote does not hand over.
local hand_over = grant_next
grant_next = function(self)
  if quarantine() > 0 then return nil end
  return hand_over(self)
end
