-- YIELD: ARGV 2 owner, 3 member of the queue, 4 ticket; the token is that of the grant that is
-- given away: a late request must not give away a later grant of the attempt
-- -> {1 given to an earlier ticket, or freed, us, length of the next provisional grant} {2 kept, us} {0 not the owner, us}
if holder ~= ARGV[2] then return {0, integer(us)} end
if last_token() ~= TOKEN then return {2, integer(us)} end
redis.call('ZREM', KEYS[2], ARGV[3]) -- allowed when memory is exhausted, and so is each write after it
redis.call('ZADD', KEYS[2], ARGV[4], ARGV[3])
if waiters(1)[1] == ARGV[3] then
  redis.call('ZREM', KEYS[2], ARGV[3])
  return {2, integer(us)}
end
local ms = free(holder_addr)
return ms and {1, integer(us), ms} or {AGAIN, integer(us)}
