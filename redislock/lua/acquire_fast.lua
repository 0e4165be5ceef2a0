-- ACQUIRE: ARGV 2 owner address, 3 ttl ms, 4 '0' not to enter the queue, 5 share (:<weight>/<capacity>, '' is the whole key),
--   6 '' or a space and metadata
-- -> {1 granted, us, left ms, pass ms, whether it had no place, token, slots}
--    {0 held, us, left ms, pass ms, whether it had no place, whether it watches, when it asks again in us, whether its
--       process is subscribed on this server, value or record of the first holder}
--    {-1 refused, us} {-2 a key of another type, us, type} {-6 again, us, pass ms}
if ARGV[5] == '' and redis.call('EXISTS', KEYS[2], KEYS[4], KEYS[6]) == 0 then
  local last = tonumber(redis.pcall('GET', KEYS[3]) or 0) or 0
  local token = last < us and us or last < 9007199254740991 and last + 1 or us
  local text = string.format('%.0f', token)
  if redis.call('SET', KEYS[1], ARGV[2] .. ' ' .. text .. ARGV[6], 'NX', 'PX', ARGV[3]) then
    redis.call('SET', KEYS[3], text)
    return {1, us, tonumber(ARGV[3]), 0, 1, token}
  end
end
