-- $1 names, $2 owners, $3 ttls in microseconds. As renew_many.sql, of shared holders.
WITH asked AS (
	SELECT * FROM unnest($1::bytea[], $2::text[], $3::bigint[]) WITH ORDINALITY AS a(name, owner, ttl, n)
), held AS ( -- Each is found by its owner: all may be of one name.
	SELECT h.waiter, a.ttl, n FROM asked a CROSS JOIN LATERAL (
		SELECT * FROM {table} WHERE waiter = a.owner AND expires > {now} FOR NO KEY UPDATE SKIP LOCKED
	) h WHERE h.name = a.name AND h.place < {shared}
), changed AS (
	UPDATE {table} h SET unclaimed = 0, expires = greatest(expires, {now} + held.ttl * interval '1 microsecond')
	FROM held WHERE h.waiter = held.waiter
	RETURNING n
)
SELECT n, {commit false} FROM changed
