-- $1 name, $2 owner, $3 party, $4 ttl in microseconds, $5 whether to wait in the queue
-- A refusal that changes nothing is read and not written: it takes no row lock and no disk write.
WITH seen AS (
	SELECT token, owner, metadata, expires, coalesce(left(queue[1], 32) = $2, false) AS first
	FROM {table}
	WHERE name = $1 AND owner <> $2 AND expires > {now}
		AND NOT EXISTS (SELECT FROM unnest(gone) g WHERE left(g, 32) = $2)
		AND (NOT $5 OR EXISTS (SELECT FROM unnest(queue) q WHERE left(q, 32) = $2))
), did AS (
	INSERT INTO {table} AS l (name, token, owner, process, metadata, granted, expires)
	SELECT $1, {us}, $2, substr($3, 34, 16), substr($3, 65), {now}, {now} + $4::bigint * interval '1 microsecond'
	WHERE NOT EXISTS (SELECT FROM seen)
	ON CONFLICT (name) DO UPDATE SET (token, owner, process, metadata, granted, expires, queue, gone) = (
		-- Only the row itself is looked at: what another table says would be of an older time.
		SELECT
			CASE WHEN given THEN greatest(l.token + 1, {us}) ELSE l.token END,
			CASE WHEN given THEN left(next, 32) ELSE l.owner END,
			CASE WHEN given THEN substr(next, 34, 16) ELSE l.process END,
			CASE WHEN given THEN substr(next, 65) ELSE l.metadata END,
			CASE WHEN given THEN {now} ELSE l.granted END,
			CASE
				WHEN given AND left(next, 32) <> $2 THEN {now} + {claim}
				WHEN given THEN {now} + $4::bigint * interval '1 microsecond'
				WHEN mine THEN greatest(l.expires, {now} + $4::bigint * interval '1 microsecond')
				ELSE l.expires END,
			CASE WHEN given THEN l.queue[2:] ELSE l.queue END
				|| CASE WHEN $5 AND NOT refused AND NOT mine AND NOT queued AND NOT (given AND left(next, 32) = $2) THEN ARRAY[$3] ELSE '{}' END,
			{swept}
		FROM (SELECT *, free AND NOT refused AS given FROM (SELECT
			l.owner IS NULL OR l.expires <= {now} AS free,
			coalesce(l.owner = $2 AND l.expires > {now}, false) AS mine,
			coalesce(l.queue[1], $3) AS next,
			EXISTS (SELECT FROM unnest(l.queue) q WHERE left(q, 32) = $2) AS queued,
			EXISTS (SELECT FROM unnest(l.gone) g WHERE left(g, 32) = $2) AS refused) s) s
	)
	RETURNING token, coalesce(owner, '') AS owner, coalesce(process, '') AS process, coalesce(metadata, '') AS metadata,
		coalesce(expires, {now}) AS expires, coalesce(granted = {now}, false) AS fresh, queue[1] AS head,
		EXISTS (SELECT FROM unnest(gone) g WHERE left(g, 32) = $2) AS refused
)
SELECT CASE WHEN refused THEN -1 WHEN owner = $2 THEN 1 ELSE 0 END, {us}, {micros expires - {now}}, token, owner, metadata,
	coalesce(left(head, 32) = $2, false),
	CASE WHEN fresh AND owner <> $2 THEN {tell grant} END::text,
	CASE WHEN fresh AND head IS NOT NULL AND left(head, 32) <> $2 THEN {tell head} END::text,
	{commit NOT refused AND owner <> $2 AND NOT fresh}
FROM did
UNION ALL
SELECT 0, {us}, {micros expires - {now}}, token, owner, coalesce(metadata, ''), first, NULL, NULL, NULL FROM seen
