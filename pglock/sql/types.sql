-- The answer to an operation; see rule.sql. token, slots and remaining are those of the attempt, if it has been granted the lock, and
-- else of the holder.
DO $$ BEGIN
	CREATE TYPE interlock_answer AS (
		status text,
		clock bigint,           -- when it was decided
		token bigint, slots text,       -- with commas
		remaining bigint,       -- the lease
		pass bigint, no_place boolean, watch boolean, ask bigint, -- as in package queue
		holder text, metadata text, weight int, capacity int,
		ahead text,             -- proof of the attempt before this one in the queue
		renewed text[]          -- owners
	);
EXCEPTION WHEN duplicate_object THEN NULL; END $$;

CREATE OR REPLACE FUNCTION interlock_clock() RETURNS bigint LANGUAGE sql AS $$
	SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
$$;

-- Makes the row of a lock. A name that was removed begins above its last token: either its row or the floor is in the
-- snapshot of the statement. If the row was deleted by another program, its holders have lost the lock, and its waiters
-- enter the queue again.
CREATE OR REPLACE FUNCTION interlock_create(n bytea) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO interlock (name, token) SELECT n, coalesce(max(t.token), 0) FROM interlock t WHERE t.name IN ('', n) ON CONFLICT DO NOTHING;
	IF FOUND THEN DELETE FROM interlock_places p WHERE p.name = n; END IF;
END $$;

-- Returns the row of a lock without the holder of a share.
CREATE OR REPLACE FUNCTION interlock_without(l interlock, h interlock_places) RETURNS interlock LANGUAGE plpgsql AS $$
BEGIN
	l.shares := l.shares - 1; l.weight := l.weight - h.weight;
	l.slots := ARRAY(SELECT unnest(l.slots) EXCEPT SELECT unnest(h.slots));
	IF h.unclaimed THEN l.pushed := l.pushed - 1; END IF;
	RETURN l;
END $$;

-- Returns the exclusive holder of a lock as a row of a share, all null if there is none.
CREATE OR REPLACE FUNCTION interlock_exclusive(l interlock) RETURNS interlock_places LANGUAGE plpgsql AS $$
DECLARE
	f interlock_places;
BEGIN
	IF l.owner IS NOT NULL THEN
		f.name := l.name; f.owner := l.owner; f.process := l.process; f.metadata := l.metadata; f.place := l.token;
		f.weight := 0; f.capacity := 0; f.slots := '{}'; f.expires := l.expires; f.unclaimed := l.unclaimed;
	END IF;
	RETURN f;
END $$;

-- Grants, renewals and breaks are on the disk before they are reported, whatever the setting of the role is. What grants
-- nothing need not be, which saves a write.
CREATE OR REPLACE FUNCTION interlock_commit(durable boolean, alone boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF NOT durable AND alone THEN
		PERFORM set_config('synchronous_commit', 'off', true);
	ELSIF durable AND current_setting('synchronous_commit') = 'off' THEN
		PERFORM set_config('synchronous_commit', 'on', true);
	END IF;
END $$;

-- Reports whether a holder may be removed: not while a transaction with Guard keeps it. h is null for the exclusive one.
CREATE OR REPLACE FUNCTION interlock_removable(n bytea, h interlock_places) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	IF h.owner IS NULL THEN
		PERFORM FROM interlock t WHERE t.name = n FOR UPDATE SKIP LOCKED;
	ELSE
		PERFORM FROM interlock_places p WHERE p.owner = h.owner FOR UPDATE SKIP LOCKED;
	END IF;
	RETURN FOUND;
END $$;

-- Reports whether a share fits beside the holders, see backend.Share.Fits.
CREATE OR REPLACE FUNCTION interlock_fits(l interlock, weight int, capacity int) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	IF l.owner IS NOT NULL OR l.shares = 0 THEN RETURN l.owner IS NULL; END IF;
	RETURN weight > 0 AND l.permits = (capacity > 0) AND (capacity = 0 OR l.weight + weight <= capacity);
END $$;
