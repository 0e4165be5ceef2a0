local owner = ARGV[3]
if ARGV[6] == 'd' then
  if holder == owner then
    read('ZCARD', KEYS[5])
    local refusal = wrong_type(KEYS[4], KEYS[5])
    if refusal then return refusal end
  end
  despite_memory() -- the other ways begin by removing something
end
if ARGV[4] ~= '0' then
  redis.call('DEL', KEYS[6]) -- allowed when memory is exhausted, and then so is each write after it
  redis.call('SET', KEYS[6], '1', 'PX', ARGV[4])
end
begin(ARGV[2])
local record = record_of(owner)
local held = record or holder == owner
if ARGV[6] == 'd' then
  if held and not record then
    local address, token, meta = string.match(value, '^(%S+) (%d+)(.*)$')
    local pushed = is_unclaimed(value) and 'u' or ''
    redis.call('DEL', KEYS[4], KEYS[5])
    redis.call('HSET', KEYS[4], owner, address .. ' ' .. token .. ':1/0::' .. pushed .. meta)
    redis.call('ZADD', KEYS[5], integer(finish), owner)
    known, kind, permits, holder, holder_addr, finish, shares_changed = '', 'r', '', nil, nil, nil, true
    first_end = nil
  end
elseif record then
  drop(owner)
  gone()
elseif held then
  release()
else
  if read('ZREM', KEYS[2], ARGV[5]) == 0 then
    -- Another process ends the attempt, or it did not wait. Both are rare.
    for _, m in ipairs(read('ZRANGE', KEYS[2], 0, -1) or {}) do
      if parse_owner(m) == owner then read('ZREM', KEYS[2], m) end
    end
  end
  head = nil
  if asked and string.sub(asked, 1, 32) == owner then asked = nil end
end
complete()
return {held and 1 or 0, us, pass(), held and announce(owner, 0)}
