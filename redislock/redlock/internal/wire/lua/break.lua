-- BREAK: ARGV 2 the owner to remove, '' for any
-- -> {1, us, left, token, removed value, length of the next provisional grant}
--    {2 another owner, us, left, token, its value}
--    {0 the key was free, us}
if other_type then return {-2, integer(us), other_type} end
if not value then return {0, integer(us)} end
local left, token = integer(redis.call('PTTL', KEYS[1])), holder_token()
if ARGV[2] ~= '' and ARGV[2] ~= (holder or value) then return {2, integer(us), left, token, value} end
local ms = free(holder_addr)
if not ms then return {AGAIN, integer(us)} end
if holder then publish(holder_addr, subscribed(holder_addr) and 'l ' .. holder or 'x') end
return {1, integer(us), left, token, value, ms}
