-- $1 names, $2 owners, $3 ttls in microseconds. What renew.sql does to each row that nobody else has locked: it waits
-- for no row, so one cannot hold up the others, and there is no deadlock however many rows it locks.
WITH asked AS (
	SELECT * FROM unnest($1::bytea[], $2::text[], $3::bigint[]) WITH ORDINALITY AS a(name, owner, ttl, n)
), mine AS (
	SELECT l.name, ttl, n FROM {table} l JOIN asked a ON l.name = a.name AND l.owner = a.owner
	WHERE expires > {now}
	FOR NO KEY UPDATE OF l SKIP LOCKED
), did AS (
	UPDATE {table} l SET expires = greatest(expires, {now} + ttl * interval '1 microsecond')
	FROM mine WHERE l.name = mine.name
	RETURNING n
)
SELECT n, {commit false} FROM did
