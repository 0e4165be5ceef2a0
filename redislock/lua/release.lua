-- RELEASE: ARGV 2 owner, 3 ms for which late requests of the attempt are refused, or '0'
-- -> {1, us} or {0 not the owner, us}
tombstone(ARGV[3])
if not v or party(v) ~= ARGV[2] then return {0, S(us)} end
if not next_holder() then redis.call('DEL', KEYS[1]) end
return {1, S(us)}
