-- ACQUIRE at a node of a Redlock. KEYS: 7 the marker of the node. ARGV: 8 the least value of a new token, 9 how long
-- the fence counter, which is that of the lock, is kept after the lease in ms, '0' for ever, 10 '1' to reply the run of
-- the server. Replies end with the run and the marker.
least = tonumber(ARGV[8])
keep_token = function(text)
  if ARGV[9] == '0' then
    redis.call('SET', KEYS[3], text)
  else
    redis.call('SET', KEYS[3], text, 'PX', string.format('%.0f', ARGV[4] + ARGV[9]))
  end
end
life = function()
  return ARGV[10] == '1' and string.match(redis.call('INFO', 'server'), 'run_id:(%x+)') or '', redis.call('GET', KEYS[7]) or ''
end
