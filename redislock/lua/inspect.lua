-- INSPECT -> {number of holders, us, of each: value or record, left ms; of each waiter: member of the queue, score}
--   {-2 a key of another type, us, type, key}
if foreign[KEYS[1]] then return wrong_type(KEYS[1]) end
local r = {0, us}
if kind == 'x' then
  r = {1, us, shown(value), left_of(finish)}
elseif kind then
  local ends = read('ZRANGE', KEYS[5], 0, -1, 'WITHSCORES') or {}
  for i = 1, #ends, 2 do
    local record = tonumber(ends[i + 1]) > us and read('HGET', KEYS[4], ends[i])
    if record then
      r[1] = r[1] + 1
      r[#r + 1] = record
      r[#r + 1] = left_of(tonumber(ends[i + 1]))
    end
  end
end
for _, m in ipairs(read('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES') or {}) do r[#r + 1] = m end
return r
