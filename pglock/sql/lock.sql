-- $1 name. Locks the row of the lock: the statements after it see all that was committed by others who locked it.
SELECT {use indexes} FROM {table} WHERE name = $1 AND place = 0 FOR NO KEY UPDATE
