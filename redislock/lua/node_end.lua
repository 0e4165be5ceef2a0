-- END, RENEW and BREAK at a node of a Redlock. The last of ARGV is the channel of those that wait for the lock. announce
-- publishes there that the lease of owner ends in ms, and how many processes are subscribed. It returns that number.
announce = function(owner, ms)
  local channel = ARGV[#ARGV]
  local n = redis.call('PUBSUB', 'NUMSUB', channel)[2]
  if n > 0 then redis.call('PUBLISH', channel, 'f ' .. owner .. ' ' .. ms .. ' ' .. n .. ' ' .. KEYS[1]) end
  return n
end
