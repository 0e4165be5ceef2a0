-- $1 from which name, $2 to which, $3 how many; held ones only, unless $1 = $2
SELECT name, token, coalesce(owner, ''), coalesce(metadata, ''), coalesce({micros expires - {now}}, 0),
	coalesce({micros {now} - granted}, 0), queue
FROM {table}
WHERE name >= $1 AND name <= $2 AND ($1 = $2 OR owner IS NOT NULL AND expires > {now})
ORDER BY name LIMIT $3
