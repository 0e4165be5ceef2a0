-- RENEW: ARGV 2 address of the process that asks, 3 owner id, 4 ttl ms, 5 '1' to set the lease to exactly ttl
-- -> {1, us, pass ms} {0 not the owner, us, pass ms}
-- RENEW never takes a free key: another attempt may have held it meanwhile.
if redis.call('EXISTS', KEYS[2], KEYS[4]) == 0 then
  local v = redis.pcall('GET', KEYS[1])
  if type(v) == 'string' and string.sub(v, 1, 33) == ARGV[3] .. '@' then
    local ms = tonumber(ARGV[4])
    if ARGV[5] ~= '1' then ms = math.max(redis.call('PTTL', KEYS[1]), ms) end
    redis.call('PEXPIRE', KEYS[1], string.format('%.0f', ms)) -- always, so that a WAIT waits for the current state
    if ARGV[5] == '1' then announce(ARGV[3], ARGV[4]) end
    return {1, us, 0}
  end
end
