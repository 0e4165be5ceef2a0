-- RENEW KEY: RENEW with the key of the lock alone, or behind it those of the holders of shares, for a slot that migrates: a
-- script with several keys is refused there. It does nothing else. ARGV and replies as RENEW.
local v, ms = redis.pcall('GET', KEYS[1]), tonumber(ARGV[4])
if type(v) ~= 'string' then return {0, us, 0} end
local left = redis.call('PTTL', KEYS[1])
local function extend(key, to) redis.call('PEXPIRE', key, string.format('%.0f', math.max(redis.call('PTTL', key), to))) end
if string.sub(v, 1, 33) == ARGV[3] .. '@' then
  redis.call('PEXPIRE', KEYS[1], string.format('%.0f', ARGV[5] == '1' and ms or math.max(left, ms)))
  return {1, us, 0}
end
if not string.find(v, '^@shared ') then return {0, us, 0} end
if not KEYS[2] then return {-9, us, 0} end -- the client repeats it with the keys of the holders
local at, to = tonumber(redis.call('ZSCORE', KEYS[3], ARGV[3]) or 0), us + ms * 1000
if at <= us or not redis.call('HGET', KEYS[2], ARGV[3]) then return {0, us, 0} end
redis.pcall('ZREM', KEYS[3], '') -- allowed when memory is exhausted, and then so is the next write
redis.call('ZADD', KEYS[3], string.format('%.0f', ARGV[5] == '1' and to or math.max(at, to)), ARGV[3])
for i, more in ipairs({1, 1000, 1000}) do extend(KEYS[i], ms + more) end
return {1, us, 0}
