-- RELEASE: ARGV 2 owner id, 3 lifetime of the tombstone in ms or '0'
-- -> {1, us} or {0 not the owner, us}
tombstone(ARGV[3])
if not value or parse_owner(value) ~= ARGV[2] then return {0, integer(us)} end
if not grant_next() then redis.call('DEL', KEYS[1]) end
return {1, integer(us)}
