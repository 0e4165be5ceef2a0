-- $1 name, $2 owner, $3 process. Returns a row if the attempt waits, and no lease may have ended; columns as in share.sql.
-- Locks no row of a lock or of a holder. If the attempt fits beside the holders, and the first waiter, which does not, is of
-- another process, that is asked whether it is alive: it has 3 s to answer.
WITH l AS (
	SELECT *, {holder} FROM {table} l WHERE name = $1 AND place = 0 AND expires > {now}
), mine AS (
	SELECT * FROM {table} WHERE waiter = $2 AND name = $1 AND place > 0
), first AS (
	SELECT f.* FROM l CROSS JOIN mine CROSS JOIN LATERAL (
		SELECT * FROM {table} w WHERE w.name = $1 AND w.place > l.served ORDER BY w.place LIMIT 1
	) f WHERE l.weight > 0 AND (l.capacity = 0 OR l.weight + mine.weight <= l.capacity) AND left(f.process, 16) <> $3
), asked AS ( -- Not again within 3 s, whichever process asked.
	UPDATE {table} t SET {ask} FROM first WHERE t.name = $1 AND t.place = first.place AND t.unclaimed = 0 AND coalesce(t.expires <= {now}, true)
	RETURNING t.waiter, t.process
)
SELECT CASE WHEN mine.unclaimed > 0 THEN 5 WHEN first.unclaimed > 0 AND first.expires <= {now} THEN 6 ELSE 0 END,
	{us}, {micros l.expires - {now}}, l.token, holder, coalesce(l.metadata, ''), '', false, '', coalesce(l.capacity, 0), {micros l.expires - {now}},
	CASE WHEN l.weight = 0 THEN -1 WHEN first.expires > {now} THEN {micros first.expires - {now}} ELSE 3000000 END,
	(SELECT {notify asked} FROM asked), {commit true}
FROM l CROSS JOIN mine LEFT JOIN first ON true
