-- $1 name, $2 owner, $3 ttl in microseconds. As renew.sql, of a shared holder. The row of the lock stays as it is: it has a
-- time before which no holder expires. The columns are those of share.sql: a grant that was pushed has its slots from here.
UPDATE {table} h SET unclaimed = 0, expires = greatest(expires, {now} + $3::bigint * interval '1 microsecond')
WHERE waiter = $2 AND name = $1 AND place < {shared} AND expires > {now}
RETURNING 1, {us}, {micros expires - {now}}, token, waiter, '', '', false, coalesce(array_to_string(slots, ','), ''), 0,
	(SELECT {micros l.expires - {now}} FROM {table} l WHERE l.name = $1 AND l.place = 0), 3000000, NULL, {commit false}
