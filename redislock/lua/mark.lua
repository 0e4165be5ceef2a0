-- MARK: KEYS 1 the marker of a node of a Redlock. ARGV: 1 the run of the server and 2 the marker that the client has
-- seen, 3 the marker that is written if both are still so, '' for none
-- -> {1, us, run of the server, marker}
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)') or ''
local marker = redis.call('GET', KEYS[1]) or ''
if ARGV[3] ~= '' and run == ARGV[1] and marker == ARGV[2] then
  marker = ARGV[3]
  redis.call('SET', KEYS[1], marker)
end
return {1, us, run, marker}
