-- $1 name, $2 owner, $3 whether late requests of the attempt must be refused
-- Without a row there is nothing to give up, but perhaps a request to refuse.
WITH seen AS (
	SELECT queue[1] AS was FROM {table} WHERE name = $1
), did AS (
	INSERT INTO {table} AS l (name, token, gone)
	SELECT $1, {us}, ARRAY[{stone}] WHERE $3 OR EXISTS (SELECT FROM seen)
	ON CONFLICT (name) DO UPDATE SET (token, owner, process, metadata, granted, expires, queue, gone) = (
		SELECT
			CASE WHEN mine AND next IS NOT NULL THEN greatest(l.token + 1, {us}) ELSE l.token END,
			CASE WHEN mine THEN left(next, 32) ELSE l.owner END,
			CASE WHEN mine THEN substr(next, 34, 16) ELSE l.process END,
			CASE WHEN mine THEN substr(next, 65) ELSE l.metadata END,
			CASE WHEN mine THEN {now} ELSE l.granted END,
			CASE WHEN NOT mine THEN l.expires WHEN next IS NOT NULL THEN {now} + {claim} END,
			CASE WHEN mine THEN others[2:] ELSE others END,
			{gone}
		FROM (SELECT *, others[1] AS next FROM (SELECT
			coalesce(l.owner = $2, false) AS mine,
			ARRAY(SELECT q FROM unnest(l.queue) WITH ORDINALITY AS u(q, n) WHERE left(q, 32) <> $2 ORDER BY n) AS others) s) s
	)
	RETURNING token, owner, process, expires, coalesce(granted = {now}, false) AS fresh, queue[1] AS head
)
SELECT
	CASE WHEN fresh AND owner IS NOT NULL THEN {tell grant} END::text,
	-- The first in the queue may be another now, and must know when the lease ends. What was seen is of before this
	-- statement waited for the row: those who were first may all have left since.
	CASE WHEN owner IS NOT NULL AND head IS NOT NULL AND (fresh OR $3 OR head IS DISTINCT FROM (SELECT was FROM seen)) THEN {tell head} END::text,
	{commit owner IS NULL AND NOT $3}
FROM did
