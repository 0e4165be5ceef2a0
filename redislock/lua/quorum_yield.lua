-- YIELD: ARGV 2 owner, 3 member of the queue, 4 ticket; the token is that of the grant that is given away, and of
-- no other: a request that arrives late must not give away what the attempt was granted, or has confirmed, since
-- -> {1 given to one who came before, or freed, us} {2 kept, us} {0 not the owner, us}
if not v or party(v) ~= ARGV[2] then return {0, S(us)} end
if last() ~= TOKEN then return {2, S(us)} end
redis.call('ZADD', KEYS[2], ARGV[4], ARGV[3])
if first() == ARGV[3] then
  redis.call('ZREM', KEYS[2], ARGV[3])
  return {2, S(us)}
end
if not next_holder() then redis.call('DEL', KEYS[1]) end
return {1, S(us)}
