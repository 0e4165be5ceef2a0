-- $1 microseconds unused, $2 name after which to begin. Looks at 1,000 rows, so that no statement takes long.
-- The first token of a new row is the clock, so it is greater than those of the deleted row.
WITH page AS (
	SELECT name FROM {table} WHERE name > $2 ORDER BY name LIMIT 1000
), deleted AS (
	DELETE FROM {table} l
	WHERE name IN (SELECT name FROM page) AND (owner IS NULL OR expires <= {now}) AND (queue = '{}' OR {dead queue})
		AND to_timestamp(token / 1000000.0) < {now} - $1::bigint * interval '1 microsecond'
		AND coalesce(greatest(granted, expires), to_timestamp(0)) < {now} - $1::bigint * interval '1 microsecond'
		AND NOT EXISTS (SELECT FROM unnest(gone) g WHERE substr(g, 34)::bigint > {us})
	RETURNING true
)
SELECT (SELECT count(*) FROM deleted)::int, coalesce((SELECT name FROM page ORDER BY name DESC LIMIT 1), '')
