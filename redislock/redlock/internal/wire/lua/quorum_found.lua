-- FOUND: ARGV 2 '', 3 us after which the marker of a new set is not written, or '0' to read only,
-- 4 '1' to begin a quarantine
-- -> {1 marked or 0 not, us, run id, set of the marker}. A node of a new set has its vote at once.
local set = string.match(read('GET', KEYS[5]) or '', '^%x* (%x+) %d+ %d+$')
if ARGV[3] ~= '0' and us <= tonumber(ARGV[3]) and (set or SET) == SET then
  mark('0', DELAY * 1000)
  set = SET
end
if ARGV[4] == '1' and set == SET then mark(integer(us), 0) end
return {set and 1 or 0, integer(us), string.match(redis.call('INFO', 'server'), 'run_id:(%x+)') or '', set or ''}
