-- BREAK: ARGV 2 the owner to remove, '' for any
-- -> {1 removed, us, left ms, pass ms, value or record of the first removed holder}
--    {2 another owner, us, left ms, pass ms, its value or record} {0 free, us, 0, pass ms} {-2 a key of another type, us, type, key}
if foreign[KEYS[1]] then return wrong_type(KEYS[1]) end
despite_memory()
begin()
local record, at = first()
local status = record and 2 or 0
if kind == 'x' then
  if ARGV[2] == '' or ARGV[2] == (holder or shown(value)) then
    status = 1
    if holder and reachable(holder_addr) then hint(holder_addr, 'l ' .. holder) end
    release()
  end
elseif kind then
  local broken = {}
  for _, owner in ipairs(ARGV[2] ~= '' and {ARGV[2]} or redis.call('ZRANGE', KEYS[5], 0, -1)) do
    local r, finish_of = record_of(owner)
    if r then
      local _, _, addr = drop(owner)
      broken[#broken + 1] = {owner = owner, addr = addr, record = r, at = finish_of, token = tonumber(string.match(r, '^%S+ (%d+)')) or 0}
    elseif ARGV[2] == '' then
      redis.call('ZREM', KEYS[5], owner) -- the record has gone
      status = 1
    end
  end
  table.sort(broken, function(a, b) return a.token < b.token end)
  for i, h in ipairs(broken) do
    if i == 1 then record, at, status = h.record, h.at, 1 end
    if reachable(h.addr) then hint(h.addr, 'l ' .. h.owner) end
  end
  gone()
end
complete()
if status == 0 then return {0, us, 0, pass()} end
if status == 1 then announce(parse_owner(shown(record)) or '-', 0) end
return {status, us, left_of(at), pass(), shown(record)}
