-- $1 microseconds. Returns a row if no client has begun to sweep for that long.
INSERT INTO {table} AS l (name, place, token, granted) VALUES ('', 0, 0, {now})
ON CONFLICT (name, place) DO UPDATE SET granted = {now} WHERE l.granted IS NULL OR l.granted < {now} - $1::bigint * interval '1 microsecond'
RETURNING {commit true}
