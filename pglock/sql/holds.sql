-- $1 name, $2 owner. Reports whether the attempt holds the lock.
SELECT EXISTS (SELECT FROM interlock WHERE name = $1::bytea AND owner = $2 AND expires > interlock_clock())
	OR EXISTS (SELECT FROM interlock_places WHERE owner = $2 AND name = $1::bytea AND kind = 'h' AND expires > interlock_clock())
