-- $1 name, $2 owner. Returns a row if the attempt waits, and no lease may have ended; columns as in share.sql.
SELECT 0, {us}, {micros l.expires - {now}}, l.token, {holder}, coalesce(l.metadata, ''), '', false, '', coalesce(l.capacity, 0),
	{micros l.expires - {now}}, NULL
FROM {table} l JOIN {table} w ON w.waiter = $2 AND w.name = l.name AND w.place > 0
WHERE l.name = $1 AND l.place = 0 AND l.expires > {now}
