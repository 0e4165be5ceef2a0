-- $1 name. Locks the row of the lock: the statements after it see all that was committed by others who locked it.
WITH locked AS (
	SELECT FROM {table} WHERE name = $1 AND place = 0 FOR NO KEY UPDATE
)
SELECT {settings}, count(*) FROM locked
