-- $1 microseconds unused. The first token of a new row is the clock, so it is greater than those of the deleted row.
DELETE FROM {table}
WHERE (owner IS NULL OR expires <= {now}) AND queue = '{}'
	AND to_timestamp(token / 1000000.0) < {now} - $1::bigint * interval '1 microsecond'
	AND coalesce(greatest(granted, expires), to_timestamp(0)) < {now} - $1::bigint * interval '1 microsecond'
	AND NOT EXISTS (SELECT FROM unnest(gone) g WHERE substr(g, 34)::bigint > {us})
RETURNING true
