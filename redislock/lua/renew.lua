begin(ARGV[2])
local record, at = record_of(ARGV[3])
local to, held = us + tonumber(ARGV[4]) * 1000, record or holder == ARGV[3]
if held then
  despite_memory()
  if record then set_end(ARGV[3], at, to, ARGV[5] == '1') else set_finish(to, ARGV[5] == '1') end
end
complete()
return {held and 1 or 0, us, pass()}
