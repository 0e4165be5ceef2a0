-- $1 microseconds unused, $2 name and $3 place after which to begin. Looks at 1,000 rows, so that no statement takes long,
-- and waits for no row. The floor is in the same transaction: a new row of a removed name begins above it.
WITH page AS (
	SELECT name, place FROM {table} WHERE (name, place) > ($2, $3) ORDER BY name, place LIMIT 1000
), unused AS (
	SELECT l.name, token FROM {table} l JOIN page p ON l.name = p.name AND l.place = p.place
	WHERE l.place = 0 AND l.name <> '' AND (owner IS NULL OR expires <= {now}) AND (tombstones IS NULL OR tombstones <= {now})
		AND coalesce(greatest(granted, expires), to_timestamp(token / 1000000.0)) < {now} - $1::bigint * interval '1 microsecond'
		AND (served = last OR expires < {now} - interval '1 hour' - (SELECT coalesce(max(ttl), 0) FROM {table} w
			WHERE w.name = l.name AND w.place > l.served) * interval '1 millisecond')
		AND NOT EXISTS (SELECT FROM {table} h WHERE h.name = l.name AND h.place < {shared}
			AND h.expires >= {now} - $1::bigint * interval '1 microsecond')
	FOR UPDATE OF l SKIP LOCKED
), floor AS (
	INSERT INTO {table} AS l (name, place, token) SELECT '', 0, max(token) FROM unused HAVING count(*) > 0
	ON CONFLICT (name, place) DO UPDATE SET token = greatest(l.token, excluded.token)
), removed AS (
	DELETE FROM {table} l USING unused WHERE l.name = unused.name AND (l.place >= 0 OR l.place < {shared})
	RETURNING l.place
), void AS (
	DELETE FROM {table} l USING page p WHERE l.name = p.name AND l.place = p.place AND p.place BETWEEN {shared} AND -1 AND l.expires <= {now}
)
SELECT (SELECT count(*) FROM removed WHERE place = 0)::int, name, place, {commit true} FROM page
ORDER BY name DESC, place DESC LIMIT 1
