-- PASS: ARGV 2 '1' if the process leaves -> {1, us, in how long the shortest grant that is not claimed ends in ms, 0 if there is none, negative to PASS again at once}
despite_memory()
begin()
complete(ARGV[2] == '1')
if more then return {1, us, -1} end
if not next(unclaimed) then return {1, us, 0} end
if kind == 'x' then return {1, us, is_unclaimed(value) and math.max(left_of(finish), 1) or 0} end
local ends = kind and redis.call('ZRANGE', KEYS[5], 0, CHUNK - 1, 'WITHSCORES') or {}
for i = 1, #ends, 2 do
  if is_unclaimed(read('HGET', KEYS[4], ends[i]) or '') then return {1, us, math.max(left_of(tonumber(ends[i + 1])), 1)} end
end
return {1, us, 0}
