CREATE TABLE IF NOT EXISTS {table} (
	name bytea PRIMARY KEY,            -- prefix:name
	token bigint NOT NULL,             -- of the last grant
	owner text,                        -- the attempt that holds the lock; null if it is free
	process text,                      -- channel of the holder's process, and hash of the holder's secret
	metadata text,                     -- of the holder
	granted timestamptz,
	expires timestamptz,               -- from then on the lock is free, even if owner is set
	queue text[] NOT NULL DEFAULT '{}', -- waiters: owner, process, hash of a secret, ttl in ms, metadata
	gone text[] NOT NULL DEFAULT '{}'   -- tombstones: an abandoned attempt, and until when its requests are refused
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
COMMENT ON TABLE {table} IS '{version}';
