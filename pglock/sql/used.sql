-- $1 version. Notes that its functions are used, at most once in an hour.
INSERT INTO interlock AS l (name, since) VALUES (decode('00', 'hex') || $1::text::bytea, interlock_clock())
ON CONFLICT (name) DO UPDATE SET since = interlock_clock() WHERE l.since < interlock_clock() - 3600000000
