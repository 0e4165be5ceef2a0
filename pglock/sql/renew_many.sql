-- $1 names, $2 owners, $3 ttls in microseconds. Does to each row what renew.sql does, unless another transaction has
-- locked the row. It waits for no row, so no row delays the others and the statement cannot deadlock.
WITH asked AS (
	SELECT * FROM unnest($1::bytea[], $2::text[], $3::bigint[]) WITH ORDINALITY AS a(name, owner, ttl, n)
), held AS (
	SELECT l.name, ttl, n FROM {table} l JOIN asked a ON l.name = a.name AND l.owner = a.owner
	WHERE expires > {now}
	FOR NO KEY UPDATE OF l SKIP LOCKED
), changed AS (
	UPDATE {table} l SET expires = greatest(expires, {now} + ttl * interval '1 microsecond')
	FROM held WHERE l.name = held.name
	RETURNING n
)
SELECT n, {commit false} FROM changed
