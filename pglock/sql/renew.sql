-- $1 name, $2 owner, $3 ttl in microseconds, $4 whether it may shorten the lease; then the transaction has locked the row.
-- Never grants a free key.
WITH changed AS (
	UPDATE {table} SET unclaimed = 0, expires = CASE
		WHEN $4 THEN {now} + $3::bigint * interval '1 microsecond'
		ELSE greatest(expires, {now} + $3::bigint * interval '1 microsecond') END
	WHERE name = $1 AND place = 0 AND owner = $2 AND expires > {now}
	RETURNING expires, served
), second AS (
	SELECT * FROM {table} WHERE $4 AND name = $1 AND place > (SELECT served FROM changed) ORDER BY place LIMIT 1
)
-- The first waiter would poll when the lease was to end.
SELECT CASE WHEN second.waiter IS NOT NULL THEN {notify second} END::text, {commit false}
FROM changed LEFT JOIN second ON true
