-- FOUND: ARGV 2 '', 3 us after which the marker is not set, or '0' to read only
-- -> {1 marked or 0 not, us, run id}. A node of a new set has its vote at once.
local marked = redis.call('EXISTS', KEYS[5])
if ARGV[3] ~= '0' and us <= tonumber(ARGV[3]) then
  redis.call('SET', KEYS[5], run_id() .. ' 0')
  marked = 1
end
return {marked, integer(us), string.match(redis.call('INFO', 'server'), 'run_id:(%x+)') or ''}
