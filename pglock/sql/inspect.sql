-- $1 first name, $2 last name, $3 limit of rows; if $1 and $2 differ, held locks only
SELECT name, token, CASE WHEN weight = 0 THEN coalesce(owner, '') ELSE '' END, coalesce(metadata, ''), coalesce({micros expires - {now}}, 0),
	coalesce({micros {now} - granted}, 0), ARRAY(SELECT {share} FROM {table} h
		WHERE l.weight > 0 AND h.name = l.name AND h.place < {shared} AND h.expires > {now} ORDER BY h.place),
	ARRAY(SELECT concat_ws(' ', waiter, greatest({micros {now} - w.granted}, 0), weight, coalesce(l.capacity, 0), coalesce(w.metadata, ''))
		FROM {table} w WHERE w.name = l.name AND w.place > l.served ORDER BY w.place)
FROM {table} l
WHERE name >= $1 AND name <= $2 AND place = 0 AND ($1 = $2 OR owner IS NOT NULL AND CASE WHEN weight = 0 THEN expires > {now}
	ELSE EXISTS (SELECT FROM {table} h WHERE h.name = l.name AND h.place < {shared} AND h.expires > {now}) END)
ORDER BY name LIMIT $3
