-- $1 name, $2 owner, $3 whether to write a tombstone, which refuses requests of the attempt that arrive later,
-- $4 secret of the attempt, by which the next holder trusts its notification; $5 its process
WITH changed AS (
	UPDATE {table} l SET {hand over}, gone = {new tombstones}
	WHERE name = $1 AND owner = $2 AND expires > {now} AND left(process, 16) = $5
	RETURNING token, owner, process, expires, queue[1] AS head
)
SELECT
	CASE WHEN owner IS NOT NULL THEN pg_notify({new holder}, {grant} || ' ' || $4) END::text,
	CASE WHEN owner IS NOT NULL AND head IS NOT NULL THEN {notify head} END::text,
	{commit owner IS NULL AND NOT $3}
FROM changed
