-- ACQUIRE: ARGV 2 address of the process that asks, 3 owner id, 4 ttl ms, 5 '0' not to enter the queue, 6 share
--   (:<weight>/<capacity>, '' is the whole key), 7 metadata
-- -> {1 granted, us, left ms, pass ms, whether it had no place, token, slots}
--    {0 held, us, left ms, pass ms, whether it had no place, whether it watches, when it asks again in us, whether its
--       process is subscribed on this server, value or record of the first holder}
--    {-1 refused, us} {-2 a key of another type, us, type, key} {-6 again, us, pass ms}
local meta = ARGV[7] ~= '' and ' ' .. ARGV[7] or ''
if ARGV[6] == '' and redis.call('EXISTS', KEYS[2], KEYS[4], KEYS[6]) == 0 then
  local last = tonumber(redis.pcall('GET', KEYS[3]) or 0) or 0
  local token = last < least and least or last < 9007199254740991 and last + 1 or least
  local text = string.format('%.0f', token)
  if redis.call('SET', KEYS[1], ARGV[3] .. '@' .. ARGV[2] .. ' ' .. text .. meta, 'NX', 'PX', ARGV[4]) then
    keep_token(text)
    return {1, us, tonumber(ARGV[4]), 0, 1, token, '', life()}
  end
end
