-- RELEASE: ARGV 2 owner id, 3 lifetime of the tombstone in ms or '0'
-- -> {1, us, length of the next provisional grant} or {0 not the owner, us}
tombstone(ARGV[3])
if holder ~= ARGV[2] then return shared and shares.leave(ARGV[2]) or {0, integer(us)} end
local ms = free(holder_addr)
return ms and {1, integer(us), ms} or {AGAIN, integer(us)}
