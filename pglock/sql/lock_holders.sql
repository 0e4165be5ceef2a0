-- $1 name, $2 owner of a shared holder that is to end, '' for all. As lock.sql, and locks those first: a transaction with Guard
-- may have locked them, and nothing else waits for it meanwhile. With the row of the lock, only what ends a holder waits for it.
WITH one AS (
	SELECT FROM {table} WHERE waiter = $2 AND name = $1 AND place < {shared} FOR UPDATE
), everyone AS (
	SELECT FROM {table} WHERE name = $1 AND place < (SELECT {shared}::bigint WHERE $2 = '') ORDER BY place FOR UPDATE
), locked AS (
	SELECT FROM {table} WHERE name = $1 AND place = 0
		AND (SELECT count(*) FROM one) + (SELECT count(*) FROM everyone) >= 0 FOR NO KEY UPDATE
)
SELECT {settings}, count(*) FROM locked
