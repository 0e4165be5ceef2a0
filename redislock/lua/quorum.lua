-- Put after the prelude in the scripts that grant, at each of several masters (Redlock).
-- KEYS: 5 the node's marker. The last of ARGV: how long a node that came back empty
-- has no vote in ms, '1' if nodes keep everything over a restart, and a token (or a ticket, or 0).
local DELAY, DURABLE, TOKEN = tonumber(ARGV[#ARGV - 2]), ARGV[#ARGV - 1] == '1', tonumber(ARGV[#ARGV])

local function run_id()
  if DURABLE then return '' end
  return string.match(redis.call('INFO', 'server'), 'run_id:(%x+)') or ''
end

-- mute is how long this node has no vote yet, in ms. The marker says in which run
-- of the server, and since when, the node remembers what it granted. It is missing
-- if the node lost its memory, and of another run if it may have lost a part.
local silence
local function mute()
  if silence then return silence end
  local run = run_id()
  local known, since = string.match(read('GET', KEYS[5]) or '', '^(%x*) (%d+)$')
  if not known or (not DURABLE and known ~= run) then
    since = S(us)
    redis.call('SET', KEYS[5], run .. ' ' .. since)
  end
  silence = math.max(0, math.ceil((tonumber(since) + DELAY * 1000 - us) / 1000))
  return silence
end

-- carry raises the counter to a token that was granted. It passes over a full memory.
local function carry(ms)
  if TOKEN > last() then redis.pcall('SET', KEYS[3], S(TOKEN), 'PX', S(ms + KEEP)) end
end

-- The clocks of the nodes differ; what a client sends to all of them does not.
raise = function(ms)
  local n = last()
  local tok = math.max(n + 1, TOKEN + 1)
  if n == 0 and TOKEN == 0 then tok = us end
  redis.call('SET', KEYS[3], S(tok), 'PX', S(ms + KEEP))
  return tok
end

-- A node without a vote hands over to nobody.
local hand_over = next_holder
next_holder = function(self)
  if mute() > 0 then return nil end
  return hand_over(self)
end
