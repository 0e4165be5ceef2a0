-- ADVANCE: grants a lock whose lease has ended to the next waiter
-- -> {1, us, what is left of a provisional grant that is not claimed, else 0}
if other_type then return {1, integer(us), '0'} end
if not value then
  local owner, _, ms = grant_next(true)
  if not owner and not waiters(1)[1] then read('ZREMRANGEBYSCORE', KEYS[2], '-inf', '(0') end -- as in free
  return {owner == AGAIN and AGAIN or 1, integer(us), integer(ms or 0)}
end
local score = holder and tonumber(read('ZSCORE', KEYS[2], holder_addr) or 0) or 0
return {1, integer(us), integer(score < 0 and math.max(redis.call('PTTL', KEYS[1]), 1) or 0)}
