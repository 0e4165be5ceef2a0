-- $1 name, $2 owner, $3 whether to write a tombstone, which refuses requests of the attempt that arrive later
WITH changed AS (
	UPDATE {table} l SET {hand over}, gone = {new tombstones}
	WHERE name = $1 AND owner = $2 AND expires > {now}
	RETURNING token, owner, process, expires, queue[1] AS head
)
SELECT
	CASE WHEN owner IS NOT NULL THEN {notify grant} END::text,
	CASE WHEN owner IS NOT NULL AND head IS NOT NULL THEN {notify head} END::text,
	{commit owner IS NULL AND NOT $3}
FROM changed
