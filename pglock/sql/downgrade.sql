-- $1 name, $2 owner. Makes the exclusive holder a shared one. The transaction has locked the row. Returns 1 if the owner is
-- a shared holder now, 0 if it does not hold the key, -2 if permits are waited for; the capacity; and whether a grant was
-- handed over last.
WITH l AS (
	SELECT * FROM {table} WHERE name = $1 AND place = 0
), reader AS (
	INSERT INTO {table} (name, place, waiter, process, metadata, granted, expires, token, weight)
	SELECT name, {shared place l.token}, owner, process, metadata, granted, expires, token, 1 FROM l
	WHERE owner = $2 AND expires > {now} AND (capacity = 0
		OR NOT EXISTS (SELECT FROM {table} WHERE name = $1 AND place > l.served AND weight > 0))
	RETURNING true
), changed AS (
	UPDATE {table} SET owner = 'shared', metadata = NULL, weight = 1, capacity = 0, unclaimed = 0
	WHERE name = $1 AND place = 0 AND EXISTS (SELECT FROM reader)
)
SELECT CASE
	WHEN EXISTS (SELECT FROM reader) OR EXISTS (SELECT FROM {table} WHERE waiter = $2 AND name = $1 AND place < {shared} AND expires > {now}) THEN 1
	WHEN owner = $2 AND expires > {now} THEN -2 ELSE 0 END, coalesce(capacity, 0), weight > 0 AND unclaimed > 0, {commit false}
FROM l
