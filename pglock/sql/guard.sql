-- $1 name, $2 owner, $3 token. The lock conflicts with a removal of the holder, see interlock_removable, and with nothing else.
WITH exclusive AS (
	SELECT 1 FROM interlock WHERE name = $1::bytea AND owner = $2 AND token = $3::bigint AND expires > interlock_clock() FOR KEY SHARE
), shared AS (
	SELECT 1 FROM interlock_places WHERE owner = $2 AND name = $1::bytea AND kind = 'h' AND place = $3::bigint AND expires > interlock_clock()
		FOR KEY SHARE
)
SELECT * FROM exclusive UNION ALL SELECT * FROM shared
