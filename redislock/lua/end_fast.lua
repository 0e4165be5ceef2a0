-- END: ARGV 2 address of the process that asks, 3 owner id, 4 how long late requests of the attempt are refused in ms, '0'
--   not at all, 5 member of the queue, 6 'd' to downgrade
-- -> {1 it held, us, pass ms} {0 it did not hold, us, pass ms} {-2 a key of another type, us, type, key}: to downgrade
if ARGV[4] == '0' and ARGV[6] == '' and redis.call('EXISTS', KEYS[2], KEYS[4]) == 0 then
  local v = redis.pcall('GET', KEYS[1])
  if type(v) ~= 'string' or string.sub(v, 1, 33) ~= ARGV[3] .. '@' then return {0, us, 0} end
  redis.call('DEL', KEYS[1])
  return {1, us, 0, announce(ARGV[3], 0)}
end
