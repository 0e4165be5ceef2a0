-- $1 name, $2 owner, $3 whether to write a tombstone, which refuses requests of the attempt that arrive later
-- If there is no row, only the tombstone is written.
WITH snapshot AS (
	SELECT queue[1] AS head FROM {table} WHERE name = $1
), changed AS (
	INSERT INTO {table} AS l (name, token, gone)
	SELECT $1, {us}, ARRAY[{tombstone}] WHERE $3 OR EXISTS (SELECT FROM snapshot)
	ON CONFLICT (name) DO UPDATE SET (token, owner, process, metadata, granted, expires, queue, gone) = (
		SELECT
			CASE WHEN held AND next IS NOT NULL THEN greatest(l.token + 1, {us}) ELSE l.token END,
			CASE WHEN held THEN left(next, 32) ELSE l.owner END,
			CASE WHEN held THEN {process next} ELSE l.process END,
			CASE WHEN held THEN {metadata next} ELSE l.metadata END,
			CASE WHEN held THEN {now} ELSE l.granted END,
			CASE WHEN NOT held THEN l.expires WHEN next IS NOT NULL THEN {now} + {provisional ttl} END,
			CASE WHEN held THEN others[2:] ELSE others END,
			{new tombstones}
		FROM (SELECT *, others[1] AS next FROM (SELECT
			coalesce(l.owner = $2, false) AS held,
			ARRAY(SELECT q FROM unnest(l.queue) WITH ORDINALITY AS u(q, n) WHERE left(q, 32) <> $2 ORDER BY n) AS others) s) s
	)
	RETURNING token, owner, process, expires, coalesce(granted = {now}, false) AS granted_now, queue[1] AS head
)
SELECT
	CASE WHEN granted_now AND owner IS NOT NULL THEN {notify grant} END::text,
	-- The first waiter may have changed, and must know when the lease ends. The snapshot is older than the row if this
	-- statement waited for the row: the waiters before this one may have left since, so a tombstone always notifies.
	CASE WHEN owner IS NOT NULL AND head IS NOT NULL AND (granted_now OR $3 OR head IS DISTINCT FROM (SELECT head FROM snapshot)) THEN {notify head} END::text,
	{commit owner IS NULL AND NOT $3}
FROM changed
