-- RENEW KEY: RENEW with the lock's key alone (of a share, with those of the holders), for a slot that migrates: a script with several keys is refused then.
-- It does not notify the watcher, which polls at the end of the lease that it knows of. ARGV and replies as RENEW.
if holder ~= ARGV[2] then
  return shared and shares.renew(ARGV[2], tonumber(ARGV[3]), ARGV[4] == '1', true) or {0, integer(us)}
end
if ARGV[4] == '1' then redis.call('PEXPIRE', KEYS[1], ARGV[3]) else extend(tonumber(ARGV[3])) end
return {1, integer(us)}
