CREATE TABLE IF NOT EXISTS interlock (
	-- Times are microseconds since 1970, by the clock of the server.
	name bytea PRIMARY KEY,                 -- prefix:name; '' keeps in token that of the rows that were removed
	token bigint NOT NULL DEFAULT 0,        -- the last one
	-- The exclusive holder; owner is null if there is none. expires is also the first end of the leases of shares, and the
	-- time when the lock was freed.
	owner text, process text, metadata text, proof text,
	since bigint NOT NULL DEFAULT 0,
	expires bigint NOT NULL DEFAULT 0,
	unclaimed boolean NOT NULL DEFAULT false,
	-- The holders of shares, together. slots are the permits that are held; pushed is how many holders are unclaimed.
	shares int NOT NULL DEFAULT 0, permits boolean NOT NULL DEFAULT false, weight int NOT NULL DEFAULT 0,
	slots int[] NOT NULL DEFAULT '{}', pushed int NOT NULL DEFAULT 0,
	-- The queue: how many wait, the place of the last one that came, up to which place none waits any more, and the watcher.
	waiters int NOT NULL DEFAULT 0, last bigint NOT NULL DEFAULT 0, served bigint NOT NULL DEFAULT 0, watcher text,
	-- What is known of processes. asked is the first waiter, if it was asked whether it is alive.
	suspects text[] NOT NULL DEFAULT '{}', lapsed boolean NOT NULL DEFAULT false, informed bigint NOT NULL DEFAULT 0,
	asked text, asked_process text, asked_at bigint,
	ended bigint NOT NULL DEFAULT 0         -- until when late requests of ended attempts are refused
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

CREATE TABLE IF NOT EXISTS interlock_places (
	name bytea NOT NULL,
	owner text NOT NULL,                    -- of an attempt, which is for one name
	kind "char" NOT NULL,                   -- w waits, h holds a share, e has ended: its late requests are refused
	place bigint NOT NULL,                  -- of a waiter: the order of the queue; of a holder: the token
	process text NOT NULL,
	metadata text NOT NULL DEFAULT '',
	proof text,
	weight int NOT NULL DEFAULT 0, capacity int NOT NULL DEFAULT 0, slots int[] NOT NULL DEFAULT '{}',
	since bigint NOT NULL,
	ttl bigint NOT NULL DEFAULT 0,          -- of a waiter
	expires bigint NOT NULL DEFAULT 0,      -- of a holder, and of one that has ended
	unclaimed boolean NOT NULL DEFAULT false,
	PRIMARY KEY (owner)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
-- Of these and the primary key each query of the functions can use one only, so that no plan depends on statistics.
CREATE INDEX IF NOT EXISTS interlock_places_queue ON interlock_places (name, kind, place);
CREATE INDEX IF NOT EXISTS interlock_places_ends ON interlock_places (name, expires, place) WHERE kind = 'h';
CREATE INDEX IF NOT EXISTS interlock_places_unclaimed ON interlock_places (process) WHERE unclaimed;

