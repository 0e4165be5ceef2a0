-- FENCE: ARGV 2 owner -> {1 the counter is no lower than the token, us} or {0 not the owner, us}
if holder ~= ARGV[2] then return {0, integer(us)} end
showed_life(holder_addr) -- also lets carry write when memory is exhausted
carry(math.max(redis.call('PTTL', KEYS[1]), 0))
if last_token() < TOKEN then return redis.error_reply('the token could not be written') end
return {1, integer(us)}
