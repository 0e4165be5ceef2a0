-- $1 name, $2 owner, $3 queue entry, $4 ttl in microseconds, $5 whether to wait in the queue
-- The snapshot answers a request that changes nothing, without a row lock and without a disk write.
WITH snapshot AS (
	SELECT token, owner, metadata, expires, coalesce(left(queue[1], 32) = $2, false) AS first, {hash ahead} AS ahead
	FROM {table}
	WHERE name = $1 AND owner <> $2 AND expires > {now}
		AND NOT EXISTS (SELECT FROM unnest(gone) g WHERE left(g, 32) = $2)
		AND (NOT $5 OR EXISTS (SELECT FROM unnest(queue) q WHERE left(q, 32) = $2))
), changed AS (
	INSERT INTO {table} AS l (name, token, owner, process, metadata, granted, expires)
	SELECT $1, {us}, $2, substr($3, 34, 49), substr($3, 98), {now}, {now} + $4::bigint * interval '1 microsecond'
	WHERE NOT EXISTS (SELECT FROM snapshot)
	ON CONFLICT (name) DO UPDATE SET (token, owner, process, metadata, granted, expires, queue, gone) = (
		-- Reads the locked row only: any other table would be read from an older snapshot.
		SELECT
			CASE WHEN grants THEN greatest(l.token + 1, {us}) ELSE l.token END,
			CASE WHEN grants THEN left(next, 32) ELSE l.owner END,
			CASE WHEN grants THEN {process next} ELSE l.process END,
			CASE WHEN grants THEN {metadata next} ELSE l.metadata END,
			CASE WHEN grants THEN {now} ELSE l.granted END,
			CASE
				WHEN grants AND left(next, 32) <> $2 THEN {now} + {provisional ttl}
				WHEN grants THEN {now} + $4::bigint * interval '1 microsecond'
				WHEN held THEN greatest(l.expires, {now} + $4::bigint * interval '1 microsecond')
				ELSE l.expires END,
			CASE WHEN grants THEN waiters[2:] ELSE waiters END
				|| CASE WHEN $5 AND NOT refused AND NOT held AND NOT queued AND NOT (grants AND left(next, 32) = $2) THEN ARRAY[$3] ELSE '{}' END,
			{live tombstones}
		FROM (SELECT *, free AND NOT refused AS grants FROM (SELECT
			l.owner IS NULL OR l.expires <= {now} AS free,
			coalesce(l.owner = $2 AND l.expires > {now}, false) AS held,
			coalesce(waiters[1], $3) AS next,
			waiters,
			EXISTS (SELECT FROM unnest(waiters) q WHERE left(q, 32) = $2) AS queued,
			EXISTS (SELECT FROM unnest(l.gone) g WHERE left(g, 32) = $2) AS refused
			FROM (SELECT CASE WHEN {dead queue} THEN '{}' ELSE l.queue END AS waiters) s) s) s
	)
	RETURNING token, coalesce(owner, '') AS owner, coalesce(process, '') AS process, coalesce(metadata, '') AS metadata,
		coalesce(expires, {now}) AS expires, coalesce(granted = {now}, false) AS granted_now, queue[1] AS head,
		EXISTS (SELECT FROM unnest(gone) g WHERE left(g, 32) = $2) AS refused, {hash ahead} AS ahead
)
SELECT CASE WHEN refused THEN -1 WHEN owner = $2 THEN 1 ELSE 0 END, {us}, {micros expires - {now}}, token, owner, metadata,
	coalesce(left(head, 32) = $2, false), coalesce(ahead, ''),
	CASE WHEN granted_now AND owner <> $2 THEN {notify grant} END::text,
	CASE WHEN granted_now AND head IS NOT NULL AND left(head, 32) <> $2 THEN {notify head} END::text,
	{commit NOT refused AND owner <> $2 AND NOT granted_now}
FROM changed
UNION ALL
SELECT 0, {us}, {micros expires - {now}}, token, owner, coalesce(metadata, ''), first, coalesce(ahead, ''), NULL, NULL, NULL FROM snapshot
