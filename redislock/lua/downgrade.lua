-- DOWNGRADE: ARGV 2 owner id
-- -> {1, us, length of the provisional grants that this request made} {0 not the owner, us} {-7 permits wait, us, capacity}
if shared then return shares.is_reader(ARGV[2]) end
if holder ~= ARGV[2] then return {0, integer(us)} end
return shares.downgrade()
