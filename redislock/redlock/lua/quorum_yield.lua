-- YIELD: ARGV 2 owner, 3 member of the queue, 4 ticket; the token is that of the grant that is
-- given away: a late request must not give away a later grant of the attempt
-- -> {1 given to an earlier ticket, or freed, us} {2 kept, us} {0 not the owner, us}
if not value or parse_owner(value) ~= ARGV[2] then return {0, integer(us)} end
if last_token() ~= TOKEN then return {2, integer(us)} end
redis.call('ZADD', KEYS[2], ARGV[4], ARGV[3])
if head() == ARGV[3] then
  redis.call('ZREM', KEYS[2], ARGV[3])
  return {2, integer(us)}
end
if not grant_next() then redis.call('DEL', KEYS[1]) end
return {1, integer(us)}
