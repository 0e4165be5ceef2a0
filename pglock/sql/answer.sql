-- $1 owner. Answers that the process of the waiter is alive, if it was asked. Returns a row if the attempt waits.
WITH answered AS (
	UPDATE {table} SET unclaimed = 0 WHERE waiter = $1 AND place > 0 AND unclaimed > 0
)
SELECT {commit true} FROM {table} WHERE waiter = $1 AND place > 0
