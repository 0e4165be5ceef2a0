-- $1 name, $2 owner, $3 whether late requests of the attempt must be refused
WITH did AS (
	UPDATE {table} l SET {hand over}, gone = {gone}
	WHERE name = $1 AND owner = $2 AND expires > {now}
	RETURNING token, owner, process, expires, queue[1] AS head
)
SELECT
	CASE WHEN owner IS NOT NULL THEN {tell grant} END::text,
	CASE WHEN owner IS NOT NULL AND head IS NOT NULL THEN {tell head} END::text,
	{commit owner IS NULL AND NOT $3}
FROM did
