-- $1 first name, $2 last name, $3 limit of rows; if $1 and $2 differ, held locks only
SELECT name, token, coalesce(owner, ''), coalesce(metadata, ''), coalesce({micros expires - {now}}, 0),
	coalesce({micros {now} - granted}, 0), ARRAY(SELECT concat_ws(' ', waiter, greatest({micros {now} - w.granted}, 0), w.metadata)
		FROM {table} w WHERE w.name = l.name AND w.place > l.served ORDER BY w.place)
FROM {table} l
WHERE name >= $1 AND name <= $2 AND place = 0 AND ($1 = $2 OR owner IS NOT NULL AND expires > {now})
ORDER BY name LIMIT $3
