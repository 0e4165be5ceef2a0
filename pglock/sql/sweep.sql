-- $1 microseconds unused, $2 name after which to begin. Looks at 1,000 locks, so that no statement takes long, and waits for no
-- row. The floor is in the same transaction: a new row of a removed name begins above it. A lock with waiters is not used any
-- more if each must have died: a waiter asks when the lease ends, and gives up if the server does not answer for its TTL.
WITH clock AS (
	SELECT interlock_clock() AS us
), page AS (
	SELECT name FROM interlock WHERE name > $2::bytea AND name >= decode('01', 'hex') ORDER BY name LIMIT 1000
), unused AS (
	SELECT l.name, l.token FROM interlock l JOIN page ON page.name = l.name, clock
	WHERE l.expires < us - $1::bigint AND l.ended <= us
		AND (l.waiters = 0 OR l.expires < us - 3600000000 - (
			SELECT coalesce(max(w.ttl), 0) FROM interlock_places w WHERE w.name = l.name AND w.kind = 'w'))
		AND NOT EXISTS (SELECT FROM interlock_places h WHERE h.name = l.name AND h.kind = 'h' AND h.expires >= us - $1::bigint)
	FOR UPDATE OF l SKIP LOCKED
), floor AS (
	INSERT INTO interlock AS l (name, token) SELECT '', max(token) FROM unused HAVING count(*) > 0
	ON CONFLICT (name) DO UPDATE SET token = greatest(l.token, excluded.token)
), removed AS (
	DELETE FROM interlock l USING unused WHERE l.name = unused.name RETURNING l.name
), places AS (
	DELETE FROM interlock_places p USING unused WHERE p.name = unused.name
)
SELECT (SELECT count(*) FROM removed)::int, max(encode(name, 'hex') COLLATE "C") FROM page HAVING count(*) > 0
