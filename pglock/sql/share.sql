-- $1 name, $2 owner, $3 process and hash of the secret, $4 metadata, $5 ttl in microseconds, $6 whether to wait in the queue,
-- $7 weight, $8 capacity, $9 whether the transaction must be on disk. The transaction has locked the row of the lock, so all
-- rows are as new as that. The request is for a share.
WITH l AS (
	SELECT * FROM {table} WHERE name = $1 AND place = 0
), mine AS (
	SELECT * FROM {table} WHERE waiter = $2
), ahead AS (
	SELECT place FROM {table} WHERE name = $1 AND place > (SELECT served FROM l) ORDER BY place LIMIT 1
), verdict AS (
	SELECT CASE
		WHEN mine.place BETWEEN {shared} AND -1 THEN -1 -- abandoned
		WHEN mine.place < 0 AND mine.expires > {now} THEN 3 -- extended
		WHEN l.expires <= {now} AND (l.weight > 0 OR EXISTS (SELECT FROM ahead)) THEN 2 -- first pass on what has expired
		WHEN mine.place > 0 THEN 0 -- waits already
		WHEN l.capacity <> $8 AND (l.weight > 0 OR EXISTS (SELECT FROM {table} WHERE name = $1 AND place > l.served AND weight > 0)) THEN -2
		WHEN NOT EXISTS (SELECT FROM ahead) AND ({free} OR l.weight > 0 AND ($8 = 0 OR l.weight + $7 <= $8)) THEN 1 -- granted
		WHEN $6 THEN 4 -- enters
		ELSE 0 END AS v
	FROM l LEFT JOIN mine ON true
), granted AS (
	INSERT INTO {table} AS t (name, place, waiter, process, metadata, granted, expires, token, weight, slots)
	SELECT $1, {shared place g.token}, $2, $3, $4, {now}, {lease}, g.token, $7, CASE WHEN $8 > 0 THEN ARRAY(
		SELECT slot FROM generate_series(0, $8 - 1) slot
		WHERE slot NOT IN (SELECT unnest(slots) FROM {table} WHERE name = $1 AND place < {shared}) ORDER BY slot LIMIT $7) END
	FROM (SELECT greatest(token + 1, {us}) AS token FROM l CROSS JOIN verdict WHERE v = 1) g
	RETURNING t.*
), extended AS (
	UPDATE {table} t SET expires = greatest(t.expires, {lease}), unclaimed = 0 FROM verdict WHERE v = 3 AND t.waiter = $2
	RETURNING t.*
), entered AS (
	INSERT INTO {table} (name, place, waiter, process, metadata, granted, ttl, weight)
	SELECT $1, last + 1, $2, $3, $4, {now}, ($5::bigint + 999) / 1000, $7 FROM l CROSS JOIN verdict WHERE v = 4
	RETURNING true
), asked AS ( -- as in peek.sql, and also if it has answered before: it may have died since
	UPDATE {table} t SET {ask} FROM ahead, verdict, l WHERE v = 4 AND t.name = $1 AND t.place = ahead.place AND t.unclaimed = 0
		AND l.weight > 0 AND ($8 = 0 OR l.weight + $7 <= $8) AND left(t.process, 16) <> left($3, 16)
	RETURNING t.waiter, t.process
), changed AS (
	UPDATE {table} t SET capacity = $8,
		token = CASE v WHEN 1 THEN granted.token ELSE t.token END,
		owner = CASE v WHEN 1 THEN 'shared' ELSE t.owner END,
		process = CASE v WHEN 1 THEN $3 ELSE t.process END,
		metadata = CASE v WHEN 1 THEN NULL ELSE t.metadata END,
		granted = CASE v WHEN 1 THEN {now} ELSE t.granted END,
		expires = CASE v WHEN 1 THEN least(CASE WHEN t.weight > 0 THEN t.expires END, granted.expires) ELSE t.expires END,
		weight = CASE v WHEN 1 THEN t.weight + $7 ELSE t.weight END,
		unclaimed = CASE v WHEN 1 THEN 0 ELSE t.unclaimed END,
		served = CASE v WHEN 1 THEN t.last ELSE t.served END,
		last = CASE v WHEN 4 THEN t.last + 1 ELSE t.last END,
		-- Readers behind each other are granted when the writer ahead of them releases: they learn its hash.
		tail = CASE v WHEN 1 THEN t.tail ELSE right($3, 32) || CASE $8 WHEN 0 THEN 'r' ELSE '' END || CASE
			WHEN t.served = t.last THEN right(t.process, 32)
			WHEN $8 = 0 AND substr(t.tail, 33, 1) = 'r' THEN substr(t.tail, 34)
			ELSE left(t.tail, 32) END END
	FROM verdict LEFT JOIN granted ON true WHERE v IN (1, 4) AND t.name = $1 AND t.place = 0
	RETURNING t.tail, t.expires
)
SELECT CASE v WHEN 3 THEN 1 WHEN 4 THEN 0 ELSE v END, {us}, coalesce({micros coalesce(g.expires, l.expires) - {now}}, 0), coalesce(g.token, l.token),
	coalesce(g.waiter, l.holder, ''), coalesce(l.metadata, ''), coalesce(CASE v WHEN 4 THEN right(changed.tail, 32) END, ''),
	v = 1 OR EXISTS (SELECT FROM entered), coalesce(array_to_string(g.slots, ','), ''), coalesce(l.capacity, 0),
	coalesce({micros coalesce(changed.expires, l.expires) - {now}}, 0), CASE WHEN l.weight > 0 THEN 3000000 ELSE -1 END,
	(SELECT {notify asked} FROM asked), {commit v = 4 AND NOT $9}
FROM verdict CROSS JOIN (SELECT *, {holder} FROM l) l LEFT JOIN changed ON true LEFT JOIN (SELECT * FROM granted UNION ALL SELECT * FROM extended) g ON true
