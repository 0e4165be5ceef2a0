CREATE TABLE IF NOT EXISTS {table} (
	name bytea NOT NULL,    -- prefix:name; '' has in token what is greater than the tokens of all rows that were removed
	place bigint NOT NULL,  -- 0: the lock; above: its waiters, in order; below: tombstones, which refuse requests of a waiter;
	                        -- below -2^62: its shared holders, in the order of their tokens
	waiter text,            -- the attempt; of waiters, tombstones and shared holders
	owner text,             -- the attempt that holds the lock; 'shared' if there are shared holders; null if it is free
	process text,           -- channel of the process of the holder or waiter, and hash of its secret
	metadata text,          -- of the holder or waiter
	granted timestamptz,    -- when the holder or waiter came, or the lock was freed
	expires timestamptz,    -- from then on the lock is free, even if owner is set, or the tombstone is void; if the lock is
	                        -- shared, no holder expires before that; of a waiter: when its answer is due, or was
	ttl bigint,             -- ms, of the waiter
	weight int NOT NULL DEFAULT 0,  -- share of the holder or waiter, 0: exclusive; of the lock: that of all shared holders
	slots int[],                    -- permits that the shared holder has
	token bigint,                        -- of the shared holder; of the lock: of its last grant
	unclaimed int NOT NULL DEFAULT 0,    -- how many grants in a row were handed over and then not renewed; of a waiter: 1 if
	                                     -- its process was asked whether it is alive, and has not answered
	-- The rest is of locks.
	capacity int,                        -- of all shared holders and waiters, or of the last ones; 0: readers; null: none ever
	served bigint NOT NULL DEFAULT 0,    -- place of the last waiter that was served; no waiter has one below
	last bigint NOT NULL DEFAULT 0,      -- place of the last waiter that came
	tail text,                           -- hash of its secret, and of the secret of the attempt ahead of it
	tombstones timestamptz,              -- when the last one is void
	PRIMARY KEY (name, place),
	UNIQUE (waiter)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
COMMENT ON TABLE {table} IS '{version}';
