CREATE TABLE IF NOT EXISTS {table} (
	name bytea NOT NULL,    -- prefix:name; '' has in token what is greater than the tokens of all rows that were removed
	place bigint NOT NULL,  -- 0: the lock; above: its waiters, in order; below: tombstones, which refuse requests of a waiter
	waiter text,            -- the attempt; of waiters and tombstones
	owner text,             -- the attempt that holds the lock; null if it is free
	process text,           -- channel of the process of the holder or waiter, and hash of its secret
	metadata text,          -- of the holder or waiter
	granted timestamptz,    -- when the holder or waiter came, or the lock was freed
	expires timestamptz,    -- from then on the lock is free, even if owner is set, or the tombstone is void
	ttl bigint,             -- ms, of the waiter
	-- The rest is of locks.
	token bigint,                        -- of the last grant
	unclaimed int NOT NULL DEFAULT 0,    -- how many grants in a row were handed over and then not renewed
	served bigint NOT NULL DEFAULT 0,    -- place of the last waiter that was served; no waiter has one below
	last bigint NOT NULL DEFAULT 0,      -- place of the last waiter that came
	tail text,                           -- hash of its secret, and of the secret of the attempt ahead of it
	tombstones timestamptz,              -- when the last one is void
	PRIMARY KEY (name, place),
	UNIQUE (waiter)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
COMMENT ON TABLE {table} IS '{version}';
