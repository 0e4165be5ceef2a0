CREATE TABLE IF NOT EXISTS {table} (
	name bytea PRIMARY KEY,            -- prefix:name
	token bigint NOT NULL,             -- of the last grant
	owner text,                        -- the attempt that holds it; null if it is free
	process text,                      -- where the holder is told things
	metadata text,                     -- what the holder says of itself
	granted timestamptz,
	expires timestamptz,               -- from then on it is free, whoever stands in owner
	queue text[] NOT NULL DEFAULT '{}', -- those who wait: owner, process, ttl in ms, metadata
	gone text[] NOT NULL DEFAULT '{}'   -- attempts given up, and until when their late requests are refused
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
COMMENT ON TABLE {table} IS '{version}';
