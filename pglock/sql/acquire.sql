-- $1 name, $2 owner, $3 process and hash of the secret, $4 metadata, $5 ttl in microseconds, $6 whether to wait in the queue,
-- $7 whether this transaction has locked the row. Only then all else is as new as the row.
-- The request is exclusive: for shares see share.sql. If shared holders have the key, owner is one of them, as text.
-- The snapshot answers a request that changes nothing, without a row lock and without a disk write.
WITH snapshot AS (
	SELECT l.token, {holder}, l.metadata, l.expires, l.capacity, coalesce(w.unclaimed > 0, false) AS asked, coalesce((
		SELECT right(process, 32) FROM {table} WHERE name = $1 AND place > l.served AND place < w.place ORDER BY place DESC LIMIT 1
		), right(l.process, 32)) AS ahead
	FROM {table} l LEFT JOIN {table} w ON w.waiter = $2
	WHERE l.name = $1 AND l.place = 0 AND l.owner <> $2 AND l.expires > {now} AND coalesce(w.place > 0, NOT $6)
), orphans AS ({remove orphans}), changed AS (
	INSERT INTO {table} AS l (name, place, token, owner, process, metadata, granted, expires)
	SELECT $1, 0, {first token}, $2, $3, $4, {now}, {lease}
	WHERE NOT EXISTS (SELECT FROM snapshot) AND NOT EXISTS (SELECT FROM {table} WHERE waiter = $2 AND place < 0)
	-- Reads the row only: any other row would be read from an older snapshot, unless $7.
	ON CONFLICT (name, place) DO UPDATE SET
		token = CASE WHEN {free} THEN greatest(l.token + 1, {us}) ELSE l.token END,
		owner = CASE WHEN {free} THEN $2 ELSE l.owner END,
		process = CASE WHEN {free} THEN $3 ELSE l.process END,
		metadata = CASE WHEN {free} THEN $4 ELSE l.metadata END,
		granted = CASE WHEN {free} THEN {now} ELSE l.granted END,
		expires = CASE WHEN {free} THEN {lease} WHEN l.owner = $2 THEN greatest(l.expires, {lease}) ELSE l.expires END,
		unclaimed = CASE WHEN {free} OR l.owner = $2 THEN 0 ELSE l.unclaimed END,
		last = CASE WHEN {free} OR l.owner = $2 THEN l.last ELSE l.last + 1 END,
		tail = CASE WHEN {free} OR l.owner = $2 THEN l.tail
			ELSE right($3, 32) || CASE WHEN l.served < l.last THEN left(l.tail, 32) ELSE right(l.process, 32) END END
	WHERE ($7 OR l.tombstones IS NULL OR l.tombstones <= {now}) AND CASE WHEN {free} THEN l.served = l.last
		ELSE ($6 OR l.owner = $2) AND ($7 OR l.weight = 0 OR l.expires > {now}) END
	RETURNING *
), entered AS (
	INSERT INTO {table} (name, place, waiter, process, metadata, granted, ttl)
	SELECT $1, last, $2, $3, $4, {now}, ($5 + 999) / 1000 FROM changed WHERE owner <> $2
	ON CONFLICT (waiter) DO NOTHING
	RETURNING true
)
SELECT CASE WHEN owner = $2 THEN 1 ELSE 0 END, {us}, {micros expires - {now}}, token, {holder}, coalesce(metadata, ''),
	coalesce(right(tail, 32), ''), granted = {now} OR EXISTS (SELECT FROM entered), {commit owner <> $2 AND NOT $7}, capacity IS NOT NULL
FROM changed l
UNION ALL
SELECT CASE WHEN asked THEN 5 ELSE 0 END, {us}, {micros expires - {now}}, token, holder, coalesce(metadata, ''), ahead, false, NULL, capacity IS NOT NULL FROM snapshot
UNION ALL -- refused, or to be sent again in a transaction that locks the row and passes an expired lease on
SELECT CASE WHEN EXISTS (SELECT FROM {table} WHERE waiter = $2 AND place < 0) THEN -1 ELSE 2 END, {us}, 0, 0, '', '', '', false, NULL,
	EXISTS (SELECT FROM {table} WHERE name = $1 AND place = 0 AND capacity IS NOT NULL)
WHERE NOT EXISTS (SELECT FROM snapshot) AND NOT EXISTS (SELECT FROM changed)
