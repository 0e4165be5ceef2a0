-- A renewal of a shared holder changes no key column, so it does not wait for FOR KEY SHARE. A removal does.
WITH exclusive AS (
	SELECT 1 FROM {table} WHERE name = $1 AND place = 0 AND owner = $2 AND token = $3 AND expires > clock_timestamp()
	FOR SHARE
), shared AS (
	SELECT 1 FROM {table} WHERE waiter = $2 AND name = $1 AND place = {shared place $3::bigint} AND expires > clock_timestamp()
	FOR KEY SHARE
)
SELECT * FROM exclusive UNION ALL SELECT * FROM shared
