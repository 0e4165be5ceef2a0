-- $1 names, $2 owners, $3 ttls in microseconds. Does to each row what renew.sql does, unless another transaction has
-- locked the row. It waits for no row, so no row delays the others and the statement cannot deadlock.
WITH asked AS (
	SELECT * FROM unnest($1::bytea[], $2::text[], $3::bigint[]) WITH ORDINALITY AS a(name, owner, ttl, n)
), held AS (
	SELECT l.name, a.ttl, n FROM {table} l JOIN asked a ON l.name = a.name AND l.owner = a.owner
	WHERE place = 0 AND expires > {now}
	FOR NO KEY UPDATE OF l SKIP LOCKED
), changed AS (
	UPDATE {table} l SET unclaimed = 0, expires = greatest(expires, {now} + held.ttl * interval '1 microsecond')
	FROM held WHERE l.name = held.name AND place = 0
	RETURNING n
)
SELECT n, {commit false} FROM changed
