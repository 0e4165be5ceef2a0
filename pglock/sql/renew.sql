-- $1 name, $2 owner, $3 ttl in microseconds, $4 whether it may shorten the lease. Never grants a free key.
WITH changed AS (
	UPDATE {table} SET expires = CASE
		WHEN $4 THEN {now} + $3::bigint * interval '1 microsecond'
		ELSE greatest(expires, {now} + $3::bigint * interval '1 microsecond') END
	WHERE name = $1 AND owner = $2 AND expires > {now}
	RETURNING expires, queue[1] AS head
)
-- The first waiter would poll when the lease was to end.
SELECT CASE WHEN $4 AND head IS NOT NULL THEN {notify head} END::text, {commit false}
FROM changed
