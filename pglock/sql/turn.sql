-- $1 microseconds. Returns a row if no client has begun to sweep for that long.
INSERT INTO interlock AS l (name, since) VALUES ('', interlock_clock())
ON CONFLICT (name) DO UPDATE SET since = interlock_clock() WHERE l.since < interlock_clock() - $1::bigint
RETURNING true
