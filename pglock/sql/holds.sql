-- $1 name, $2 owner, $3 token. Reports whether the attempt has that grant.
SELECT EXISTS (SELECT FROM interlock WHERE name = $1::bytea AND owner = $2 AND token = $3::bigint AND expires > interlock_clock())
	OR EXISTS (SELECT FROM interlock_places WHERE owner = $2 AND name = $1::bytea AND kind = 'h' AND place = $3::bigint AND expires > interlock_clock())
