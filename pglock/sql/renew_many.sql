-- $1 names, $2 owners, $3 ttls in microseconds, $4 tokens of shared holders, and 0 of exclusive ones. Does to each row
-- what renew.sql or renew_share.sql does, unless another transaction has locked the row. It waits for no row, so no row
-- delays the others and the statement cannot deadlock.
WITH asked AS (
	SELECT *, CASE token WHEN 0 THEN 0 ELSE {shared place token} END AS at
	FROM unnest($1::bytea[], $2::text[], $3::bigint[], $4::bigint[]) WITH ORDINALITY AS a(name, owner, ttl, token, n)
), held AS (
	SELECT l.name, l.place, a.ttl, n FROM {table} l JOIN asked a ON l.name = a.name AND l.place = a.at
	WHERE coalesce(l.waiter, l.owner) = a.owner AND expires > {now}
	FOR NO KEY UPDATE OF l SKIP LOCKED
), changed AS (
	UPDATE {table} l SET unclaimed = 0, expires = greatest(expires, {now} + held.ttl * interval '1 microsecond')
	FROM held WHERE l.name = held.name AND l.place = held.place
	RETURNING n
)
SELECT n, {commit false} FROM changed
