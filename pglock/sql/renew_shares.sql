-- $1 names, $2 owners, $3 ttls in microseconds. As renew_many.sql, of shared holders.
WITH asked AS (
	SELECT * FROM unnest($1::bytea[], $2::text[], $3::bigint[]) WITH ORDINALITY AS a(name, owner, ttl, n)
), held AS (
	SELECT h.waiter, a.ttl, n FROM {table} h JOIN asked a ON h.waiter = a.owner AND h.name = a.name
	WHERE place < {shared} AND expires > {now}
	FOR NO KEY UPDATE OF h SKIP LOCKED
), changed AS (
	UPDATE {table} h SET unclaimed = 0, expires = greatest(expires, {now} + held.ttl * interval '1 microsecond')
	FROM held WHERE h.waiter = held.waiter
	RETURNING n
)
SELECT n, {commit false} FROM changed
