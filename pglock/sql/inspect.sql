-- $1 first name, $2 last name, $3 limit of locks; if $1 and $2 differ, held locks only. Returns holders (h) and waiters (w).
WITH clock AS (
	SELECT interlock_clock() AS us
), page AS (
	SELECT l.* FROM interlock l, clock WHERE l.name BETWEEN $1::bytea AND $2::bytea AND ($1::bytea = $2::bytea OR l.owner IS NOT NULL AND l.expires > us
		OR l.shares > 0 AND EXISTS (SELECT FROM interlock_places p WHERE p.name = l.name AND p.kind = 'h' AND p.expires > us))
	ORDER BY l.name LIMIT $3::bigint
)
SELECT encode(name, 'hex'), kind::text, owner, metadata, weight, capacity, slots, place, us - since, expires - us FROM (
	SELECT name, 'h'::"char" AS kind, owner, metadata, 0 AS weight, 0 AS capacity, '{}'::int[] AS slots, token AS place, since, expires
		FROM page WHERE owner IS NOT NULL
	UNION ALL
	SELECT p.name, p.kind, p.owner, p.metadata, p.weight, p.capacity, p.slots, p.place, p.since, p.expires
		FROM page JOIN interlock_places p ON p.name = page.name WHERE p.kind IN ('h', 'w')
) r, clock WHERE kind = 'w' OR expires > us ORDER BY name, kind, place
