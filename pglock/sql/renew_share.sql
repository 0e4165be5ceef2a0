-- $1 name, $2 owner, $3 ttl in microseconds. As renew.sql, of a shared holder. The row of the lock stays as it is: it has a
-- time before which no holder expires.
UPDATE {table} SET unclaimed = 0, expires = greatest(expires, {now} + $3::bigint * interval '1 microsecond')
WHERE waiter = $2 AND name = $1 AND place < {shared} AND expires > {now}
RETURNING {commit false}
