-- HOLD: RENEW of the lock's key alone, for the time in which its slot migrates and
-- scripts of several keys are refused. The first in the queue is not told: it asks
-- when the lease ends that it knows of. ARGV and answers are those of RENEW.
if not v or party(v) ~= ARGV[2] then return {0, S(us)} end
if ARGV[4] == '1' then redis.call('PEXPIRE', KEYS[1], ARGV[3]) else extend(tonumber(ARGV[3])) end
return {1, S(us)}
