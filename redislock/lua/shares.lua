-- Shares.

-- storable reports whether shares could be stored. It is true while the key has an exclusive holder.
local function storable() return kind == 'x' or not foreign[KEYS[4]] and (kind or read('ZCARD', KEYS[5])) end

local function slots_of(record) return string.match(record, '^%S+ %d+:%d+/%d+:([%d,-]*)') end

local function mark(slots, digit)
  for a, b in string.gmatch(slots or '', '(%d+)%-(%d+)') do
    a, b = tonumber(a), tonumber(b)
    permits = permits .. string.rep('0', b + 1 - #permits)
    permits = string.sub(permits, 1, a) .. string.rep(digit, b - a + 1) .. string.sub(permits, b + 2)
  end
end

-- take returns the lowest permits that are free.
local function take(weight)
  local ranges, from = {}, 1
  permits = permits .. string.rep('0', weight)
  while weight > 0 do
    local a, b = string.find(permits, '0+', from)
    b = math.min(b, a + weight - 1)
    ranges[#ranges + 1] = integer(a - 1) .. '-' .. integer(b - 1)
    weight, from = weight - (b - a + 1), b + 1
  end
  local slots = table.concat(ranges, ',')
  mark(slots, '1')
  permits = string.gsub(permits, '0+$', '')
  return slots
end

-- is_unclaimed reports whether a holder with that record is unclaimed.
local function is_unclaimed(record)
  local _, addr = parse_owner(record)
  local p = addr and unclaimed[addr]
  if not p then return false end
  local token, pushed = string.match(record, '^%S+ (%d+)(%S*)')
  return tonumber(token or 0) >= p.token and (pushed == '' or string.sub(pushed, -2) == ':u')
end

-- drop removes a share and returns its record. If the server has evicted the records, the permits are counted again.
local function drop(owner)
  local record = read('HGET', KEYS[4], owner) or nil
  redis.call('ZREM', KEYS[5], owner)
  if not record then
    permits = ''
    for _, other in ipairs(read('HVALS', KEYS[4]) or {}) do mark(slots_of(other), '1') end
    return nil
  end
  redis.call('HDEL', KEYS[4], owner)
  mark(slots_of(record), '0')
  local _, addr = parse_owner(record)
  local was = is_unclaimed(record)
  if was then
    local p = unclaimed[addr]
    p.count = p.count - 1
    if p.count <= 0 then unclaimed[addr] = nil end
  end
  return record, was, addr
end

-- record_of returns the record of a share and the end of its lease, nil if the owner has none.
local function record_of(owner)
  if kind ~= 'r' and kind ~= 'p' then return nil end
  local at = read('ZSCORE', KEYS[5], owner)
  local record = at and read('HGET', KEYS[4], owner)
  if record then return record, tonumber(at) end
end

-- first returns the value or record of the holder whose lease ends first, and that end.
local first_record, first_end
local function first()
  if not first_end then
    first_record = nil
    if kind == 'x' then
      first_record, first_end = value, finish
    elseif kind then
      local e = redis.call('ZRANGE', KEYS[5], 0, 0, 'WITHSCORES')
      first_record, first_end = read('HGET', KEYS[4], e[1]) or '', tonumber(e[2])
    end
  end
  return first_record, first_end
end

local shares_changed = false -- the marker must be written

-- gone is called when shares were removed.
local function gone()
  shares_changed = true
  first_end = nil
  if (read('ZCARD', KEYS[5]) or 0) == 0 then
    remove(KEYS[1], KEYS[5])
    kind, permits, value, shares_changed = nil, '', false, false
  end
end

-- left_of returns a lease in ms.
local function left_of(at) return at == FOREVER and -1 or math.max(math.ceil((at - us) / 1000), 0) end
