-- $1 name, $2 owner, $3 time in microseconds. Leaves the lease of a shared holder to expire then. The transaction has locked
-- the row.
WITH kept AS (
	UPDATE {table} SET unclaimed = 0, expires = {now} + $3::bigint * interval '1 microsecond'
	WHERE waiter = $2 AND name = $1 AND place < {shared} AND expires > {now}
	RETURNING expires
), changed AS (
	UPDATE {table} t SET expires = least(t.expires, kept.expires) FROM kept WHERE t.name = $1 AND t.place = 0
	RETURNING t.expires, t.served
), second AS (
	SELECT * FROM {table} WHERE name = $1 AND place > (SELECT served FROM changed) ORDER BY place LIMIT 1
)
-- The first waiter would poll when the lease was to end.
SELECT CASE WHEN second.waiter IS NOT NULL THEN {notify second} END::text, {commit false}
FROM changed LEFT JOIN second ON true
