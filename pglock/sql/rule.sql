-- The steps of every operation, as the comment of queuetest.Reference numbers and names them.
--
-- op     acquire, renew, end, forget (end, if the attempt is of the sender), downgrade, break, pass
-- n      name of the lock
-- self   owner: the attempt; of a break the holder, or '' for all
-- sender its process
-- meta, lease, wt, cp    metadata, TTL, weight and capacity of an acquire
-- owners, leases, exactly    attempts that are renewed, for how long, and whether also if that is sooner
-- flag   acquire: it enters the queue; end: late requests are refused; pass: the sender leaves
-- hash   acquire: proof of the attempt, the hash of its secret
-- secret end: the secret, by which the next holder trusts the notification of its grant
-- waits  whether to wait for the row if another transaction has locked it
--
-- status granted, held, refused, renewed (see renewed in the answer), ended, free (it did not hold), passed; again (there are more waiters to grant first);
--        guarded (a transaction with Guard keeps the holder), locked (another transaction has locked the row): nothing was done
CREATE OR REPLACE FUNCTION interlock_rule(
	op text, n bytea, self text, sender text, meta text, lease bigint, wt int, cp int, flag boolean, hash text, secret text, waits boolean,
	owners text[] DEFAULT NULL, leases bigint[] DEFAULT NULL, exactly boolean[] DEFAULT NULL
) RETURNS interlock_answer LANGUAGE plpgsql SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_indexscan = on SET enable_sort = on
SET enable_nestloop = on AS $$
DECLARE
	a interlock_answer := ROW('', 0, 0, '', 0, 0, true, false, 0, '', '', 0, 0, '', NULL);
	asker text := CASE op WHEN 'acquire' THEN self ELSE '' END;
	clock bigint; earliest bigint;
	l interlock; before interlock;  -- the row of the lock
	me interlock_places;            -- the row of the attempt
	f interlock_places;             -- FIRST
	w interlock_places;
	holds boolean := false; noted text; nearest text; dismissed text[] := '{}'; provisional bigint; left_of_first bigint;
	handled int := 0; i int; more boolean := false; changed boolean := false; informs boolean; seen text[]; removed int;
BEGIN
	a.status := CASE op WHEN 'acquire' THEN 'held' WHEN 'renew' THEN 'renewed' WHEN 'pass' THEN 'passed' ELSE 'free' END;

	-- Lock the row of the lock. Then all that was committed for the name is seen, and only this transaction changes it.
	LOOP
		IF waits THEN
			SELECT * INTO l FROM interlock t WHERE t.name = n FOR NO KEY UPDATE;
		ELSE
			SELECT * INTO l FROM interlock t WHERE t.name = n FOR NO KEY UPDATE SKIP LOCKED;
		END IF;
		EXIT WHEN FOUND;
		IF NOT waits AND EXISTS (SELECT FROM interlock t WHERE t.name = n) THEN
			a.status := 'locked'; a.clock := interlock_clock(); RETURN a;
		END IF;
		IF op <> 'acquire' AND NOT (op = 'end' AND flag) THEN
			a.clock := interlock_clock(); RETURN a;
		END IF;
		PERFORM interlock_create(n);
	END LOOP;
	clock := interlock_clock(); a.clock := clock;
	before := l;
	earliest := least(l.expires, clock); -- no lease of a share ends before that; entries of the index below it are dead
	IF l.asked_at > clock THEN l.asked_at := clock; END IF; -- the clock was set back
	IF l.ended > 0 AND op = 'acquire' THEN
		PERFORM FROM interlock_places p WHERE p.owner = self AND p.kind = 'e' AND p.expires > clock;
		IF FOUND THEN a.status := 'refused'; RETURN a; END IF;
	END IF;

	-- 1. Expire. A holder that a transaction with Guard keeps stays.
	IF l.owner IS NOT NULL AND l.expires <= clock THEN
		IF interlock_removable(n, NULL) THEN
			IF l.unclaimed THEN l.suspects := l.suspects || l.process; l.lapsed := true; END IF;
			l.owner := NULL; l.unclaimed := false; l.watcher := NULL;
		END IF;
	ELSIF l.shares > 0 AND l.expires <= clock THEN
		FOR w IN DELETE FROM interlock_places p WHERE p.owner IN (
			SELECT h.owner FROM interlock_places h WHERE h.name = n AND h.kind = 'h' AND h.expires BETWEEN l.expires AND clock FOR UPDATE SKIP LOCKED
		) RETURNING p.* LOOP
			IF w.unclaimed THEN l.suspects := l.suspects || w.process; l.lapsed := true; END IF;
			l := interlock_without(l, w); l.watcher := NULL;
		END LOOP;
	END IF;
	IF l.owner IS NULL AND l.shares = 0 AND l.waiters = 0 THEN
		l.suspects := '{}'; l.lapsed := false; l.informed := 0;
	END IF;
	IF l.ended > 0 AND l.ended <= clock THEN
		DELETE FROM interlock_places p WHERE p.name = n AND p.kind = 'e' AND p.expires <= clock;
		l.ended := 0;
	END IF;

	-- 2. Note. The operation before has left the watcher in the row.
	noted := l.watcher;

	-- 3. Life.
	IF op NOT IN ('break', 'pass') THEN
		IF l.unclaimed AND l.process = sender THEN l.unclaimed := false; l.lapsed := false; END IF;
		IF l.pushed > 0 THEN
			-- At most 100: of thousands each operation of the process has its part, and a renewal claims what it renews.
			UPDATE interlock_places p SET unclaimed = false WHERE p.owner IN (
				SELECT u.owner FROM interlock_places u WHERE u.process = sender AND u.unclaimed AND u.name IS NOT DISTINCT FROM n LIMIT 100
			);
			GET DIAGNOSTICS removed = ROW_COUNT;
			IF removed > 0 THEN l.pushed := l.pushed - removed; l.lapsed := false; END IF;
		END IF;
		l.suspects := array_remove(l.suspects, sender);
		IF l.asked_process = sender THEN l.asked := NULL; l.asked_process := NULL; END IF;
		SELECT * INTO me FROM interlock_places p WHERE p.owner = self;
		IF me.name <> n THEN me := NULL; END IF;
		holds := coalesce(l.owner = self AND l.expires > clock, false) OR coalesce(me.kind = 'h' AND me.expires > clock, false);
	END IF;

	-- 4. What the operation does.
	IF op = 'acquire' THEN
		a.no_place := me.kind IS DISTINCT FROM 'w';
		IF holds AND me.kind = 'h' THEN
			me.expires := greatest(me.expires, clock + lease);
			UPDATE interlock_places p SET expires = me.expires WHERE p.owner = self;
		ELSIF holds THEN
			l.expires := greatest(l.expires, clock + lease);
		END IF;
	ELSIF op = 'renew' AND l.owner IS NOT NULL THEN
		i := array_position(owners, l.owner);
		IF i IS NOT NULL AND l.expires > clock THEN
			l.expires := CASE WHEN exactly[i] THEN clock + leases[i] ELSE greatest(l.expires, clock + leases[i]) END;
			a.renewed := ARRAY[l.owner];
		END IF;
	ELSIF op = 'renew' THEN
		IF l.pushed > 0 THEN
			SELECT count(*) INTO removed FROM interlock_places p WHERE p.owner = ANY (owners) AND p.unclaimed AND p.kind = 'h' AND p.expires > clock
				AND p.name IS NOT DISTINCT FROM n;
			l.pushed := l.pushed - removed;
		END IF;
		FOR i IN 1..cardinality(owners) LOOP
			UPDATE interlock_places p SET unclaimed = false,
				expires = CASE WHEN exactly[i] THEN clock + leases[i] ELSE greatest(p.expires, clock + leases[i]) END
				WHERE p.owner = owners[i] AND p.kind = 'h' AND p.expires > clock AND p.name IS NOT DISTINCT FROM n;
			IF FOUND THEN a.renewed := a.renewed || owners[i]; END IF;
		END LOOP;
	ELSIF op IN ('end', 'forget', 'downgrade') THEN
		IF op = 'forget' AND sender <> coalesce(me.process, l.process, '') THEN
			holds := false; me := NULL;
		ELSIF holds AND NOT (op = 'downgrade' AND me.kind IS NOT DISTINCT FROM 'h') AND NOT interlock_removable(n, me) THEN
			a.status := 'guarded';
		ELSIF holds AND op = 'downgrade' THEN
			IF l.owner = self THEN
				INSERT INTO interlock_places (name, owner, kind, place, process, metadata, proof, weight, since, expires, unclaimed)
					VALUES (n, self, 'h', l.token, l.process, l.metadata, l.proof, 1, l.since, l.expires, l.unclaimed);
				l.shares := 1; l.weight := 1; l.permits := false; l.slots := '{}'; l.pushed := l.unclaimed::int;
				l.owner := NULL; l.unclaimed := false;
			END IF;
			a.status := 'ended';
		ELSIF holds AND me.kind = 'h' THEN
			DELETE FROM interlock_places p WHERE p.owner = self;
			l := interlock_without(l, me);
			a.status := 'ended';
		ELSIF holds THEN
			l.owner := NULL; l.unclaimed := false; l.expires := clock;
			a.status := 'ended';
		ELSIF me.kind = 'w' AND op <> 'downgrade' THEN
			DELETE FROM interlock_places p WHERE p.owner = self;
			l.waiters := l.waiters - 1;
			IF l.asked = self THEN l.asked := NULL; l.asked_process := NULL; END IF;
		END IF;
		IF op = 'end' AND flag THEN
			l.ended := clock + 300000000;
			INSERT INTO interlock_places (name, owner, kind, place, process, since, expires) VALUES (n, self, 'e', 0, '', clock, l.ended)
				ON CONFLICT DO NOTHING;
		END IF;
	ELSIF op = 'break' AND l.owner IS NOT NULL THEN
		f := interlock_exclusive(l);
		IF self IN ('', l.owner) THEN
			IF interlock_removable(n, NULL) THEN
				a.status := 'ended';
				PERFORM pg_notify('interlock_' || l.process, concat_ws(' ', 'lost', encode(n, 'hex'), l.owner));
				l.owner := NULL; l.unclaimed := false; l.expires := clock;
			ELSE
				a.status := 'guarded';
			END IF;
		END IF;
	ELSIF op = 'break' AND l.shares > 0 THEN
		SELECT * INTO f FROM interlock_places p WHERE p.name = n AND p.kind = 'h' AND p.expires >= earliest
			ORDER BY p.expires, p.place LIMIT 1;
		owners := CASE self WHEN '' THEN ARRAY(SELECT p.owner FROM interlock_places p WHERE p.name = n AND p.kind = 'h') ELSE ARRAY[self] END;
		PERFORM FROM interlock_places p WHERE p.owner = ANY (owners) FOR UPDATE SKIP LOCKED;
		GET DIAGNOSTICS removed = ROW_COUNT;
		IF removed < (SELECT count(*) FROM interlock_places p WHERE p.owner = ANY (owners)) THEN
			a.status := 'guarded';
		ELSE
			FOR w IN DELETE FROM interlock_places p WHERE p.owner = ANY (owners) AND p.kind = 'h' AND p.name IS NOT DISTINCT FROM n RETURNING p.* LOOP
				IF a.status <> 'ended' OR w.place < f.place THEN f := w; END IF;
				a.status := 'ended';
				PERFORM pg_notify('interlock_' || w.process, concat_ws(' ', 'lost', encode(n, 'hex'), w.owner));
				l := interlock_without(l, w);
			END LOOP;
		END IF;
	END IF;

	-- 5. Admit. An acquire without a place is behind the last waiter.
	LOOP
		EXIT WHEN l.owner IS NOT NULL AND l.suspects = '{}' AND l.asked IS NULL; -- none fits, and none is to be removed
		IF handled = 500 THEN more := true; EXIT; END IF; -- others are not to wait long for the row
		EXIT WHEN l.pushed >= 500 AND l.waiters > 0; -- more could not be claimed in time; each claim goes on here
		handled := handled + 1;
		w := NULL;
		IF l.waiters > 0 THEN
			SELECT * INTO w FROM interlock_places p WHERE p.name = n AND p.kind = 'w' AND p.place > l.served ORDER BY p.place LIMIT 1;
			IF NOT FOUND THEN l.waiters := 0; END IF; -- rows were deleted by another program
		END IF;
		IF w.owner IS NULL THEN
			EXIT WHEN op <> 'acquire' OR holds OR me.owner IS NOT NULL;
			w.name := n; w.owner := self; w.process := sender; w.metadata := meta; w.weight := wt; w.capacity := cp; w.ttl := lease;
			w.proof := hash; w.since := clock; w.place := l.last + 1;
		END IF;
		IF w.process <> ALL (l.suspects) AND interlock_fits(l, w.weight, w.capacity) THEN
			l.token := greatest(l.token + 1, clock);
			provisional := CASE WHEN w.owner = asker THEN w.ttl ELSE least(w.ttl, CASE WHEN l.lapsed THEN 750000 ELSE 3000000 END) END;
			w.slots := CASE WHEN w.capacity = 0 THEN '{}' ELSE ARRAY(
				SELECT s FROM generate_series(0, w.capacity - 1) s EXCEPT SELECT unnest(l.slots) ORDER BY 1 LIMIT w.weight) END;
			w.unclaimed := w.owner <> asker;
			w.expires := clock + provisional;
			IF w.kind = 'w' THEN
				l.waiters := l.waiters - 1; l.served := w.place;
				IF w.weight = 0 THEN DELETE FROM interlock_places p WHERE p.owner = w.owner; END IF;
			END IF;
			IF w.weight = 0 THEN
				l.owner := w.owner; l.process := w.process; l.metadata := w.metadata; l.proof := w.proof;
				l.since := clock; l.expires := w.expires; l.unclaimed := w.unclaimed;
			ELSE
				IF w.kind = 'w' THEN
					UPDATE interlock_places p SET kind = 'h', place = l.token, slots = w.slots, since = clock, expires = w.expires, unclaimed = w.unclaimed
						WHERE p.owner = w.owner;
				ELSE
					INSERT INTO interlock_places (name, owner, kind, place, process, metadata, proof, weight, capacity, slots, since, expires)
						VALUES (n, self, 'h', l.token, sender, meta, hash, wt, cp, w.slots, clock, w.expires);
				END IF;
				l.shares := l.shares + 1; l.weight := l.weight + w.weight; l.permits := w.capacity > 0; l.slots := l.slots || w.slots;
				IF w.unclaimed THEN l.pushed := l.pushed + 1; END IF;
			END IF;
			IF w.owner = asker THEN
				holds := true; me := w; me.kind := 'h'; me.place := l.token;
			ELSE
				a.pass := CASE a.pass WHEN 0 THEN provisional ELSE least(a.pass, provisional) END;
				PERFORM pg_notify('interlock_' || w.process, concat_ws(' ', 'granted', encode(n, 'hex'), w.owner, l.token, w.expires, provisional,
					array_to_string(w.slots, ','), nullif(secret, '')));
			END IF;
		ELSIF w.kind IS NULL THEN
			EXIT;
		ELSIF w.process = ANY (l.suspects) OR l.asked = w.owner AND l.asked_at + 3000000 <= clock THEN
			IF w.process <> ALL (l.suspects) THEN l.suspects := l.suspects || w.process; END IF;
			DELETE FROM interlock_places p WHERE p.owner = w.owner;
			l.waiters := l.waiters - 1; l.served := w.place;
			IF w.process <> ALL (dismissed) THEN
				dismissed := dismissed || w.process;
				PERFORM pg_notify('interlock_' || w.process, concat_ws(' ', 'removed', encode(n, 'hex'), w.owner));
			END IF;
		ELSE
			EXIT;
		END IF;
		IF l.asked = w.owner THEN l.asked := NULL; l.asked_process := NULL; END IF;
	END LOOP;
	IF op = 'acquire' AND NOT holds AND me.owner IS NULL AND flag AND NOT more THEN
		IF l.waiters > 0 THEN
			a.ahead := coalesce((SELECT p.proof FROM interlock_places p WHERE p.name = n AND p.kind = 'w' AND p.place = l.last), '');
		ELSIF l.owner IS NOT NULL THEN
			a.ahead := l.proof;
		END IF;
		l.last := l.last + 1; l.waiters := l.waiters + 1;
		INSERT INTO interlock_places (name, owner, kind, place, process, metadata, proof, weight, capacity, since, ttl)
			VALUES (n, self, 'w', l.last, sender, meta, hash, wt, cp, clock, lease);
	END IF;

	-- FIRST
	IF l.shares > 0 THEN
		SELECT * INTO w FROM interlock_places p WHERE p.name = n AND p.kind = 'h' AND p.expires >= earliest
			ORDER BY p.expires, p.place LIMIT 1;
		IF NOT FOUND THEN -- rows were deleted by another program
			l.shares := 0; l.weight := 0; l.slots := '{}'; l.pushed := 0;
		END IF;
		l.expires := coalesce(w.expires, clock);
	ELSE
		w := interlock_exclusive(l);
	END IF;
	IF op <> 'break' THEN f := w; END IF;
	-- A holder that a transaction with Guard keeps is looked at again soon.
	left_of_first := CASE WHEN l.expires <= clock THEN 250000 ELSE l.expires - clock END;

	-- 6. Inform.
	l.watcher := NULL;
	IF l.waiters > 0 AND w.owner IS NOT NULL THEN
		IF NOT w.unclaimed OR noted IS NOT NULL THEN
			SELECT q.owner INTO nearest FROM (
				SELECT p.owner, p.process, p.place FROM interlock_places p WHERE p.name = n AND p.kind = 'w' AND p.place > l.served ORDER BY p.place LIMIT 16
			) q ORDER BY q.process = w.process, q.place LIMIT 1;
			changed := w.unclaimed OR nearest IS DISTINCT FROM noted OR l.expires < before.expires - 20000;
			IF NOT w.unclaimed THEN l.watcher := nearest; END IF;
		END IF;
		informs := a.pass > 0 AND NOT clock BETWEEN l.informed AND l.informed + 999999 OR op = 'pass' AND flag AND w.unclaimed;
		IF informs THEN l.informed := clock; END IF;
		IF changed OR informs THEN
			seen := ARRAY[w.process];
			FOR w IN SELECT * FROM interlock_places p WHERE p.name = n AND p.kind = 'w' AND p.place > l.served ORDER BY p.place LIMIT 16 LOOP
				IF w.owner <> asker AND (changed AND w.owner = nearest OR informs AND w.process <> ALL (seen)) THEN
					PERFORM pg_notify('interlock_' || w.process, concat_ws(' ', 'ends', encode(n, 'hex'), w.owner, left_of_first));
				END IF;
				seen := seen || w.process;
			END LOOP;
		END IF;
	END IF;

	-- The answer.
	IF op = 'acquire' AND holds THEN
		a.status := 'granted';
		IF l.owner = self THEN
			a.token := l.token; a.remaining := l.expires - clock;
		ELSE
			a.token := me.place; a.remaining := me.expires - clock; a.slots := array_to_string(me.slots, ',');
		END IF;
	ELSIF op = 'acquire' OR op = 'break' AND f.owner IS NOT NULL THEN
		a.holder := coalesce(f.owner, ''); a.metadata := coalesce(f.metadata, ''); a.weight := f.weight; a.capacity := f.capacity;
		a.token := f.place; a.slots := coalesce(array_to_string(f.slots, ','), '');
		a.remaining := CASE op WHEN 'break' THEN f.expires - clock ELSE left_of_first END;
		a.watch := coalesce(l.watcher = self, false) OR f.unclaimed;
		IF op = 'acquire' AND interlock_fits(l, wt, cp) THEN -- is the first waiter, which does not fit, alive?
			SELECT * INTO w FROM interlock_places p WHERE p.name = n AND p.kind = 'w' AND p.place > l.served ORDER BY p.place LIMIT 1;
			IF w.process <> sender THEN
				IF l.asked IS DISTINCT FROM w.owner THEN
					l.asked := w.owner; l.asked_process := w.process; l.asked_at := clock;
					PERFORM pg_notify('interlock_' || w.process, concat_ws(' ', 'asked', encode(n, 'hex'), w.owner));
				END IF;
				a.ask := l.asked_at + 3000000 - clock;
			END IF;
		END IF;
	ELSIF op = 'pass' THEN
		IF l.unclaimed THEN a.pass := greatest(l.expires - clock, 1); END IF;
		IF l.pushed > 0 THEN
			SELECT greatest(p.expires - clock, 1) INTO a.pass FROM interlock_places p WHERE p.name = n AND p.kind = 'h' AND p.expires >= earliest
				AND p.unclaimed ORDER BY p.expires, p.place LIMIT 1;
			a.pass := coalesce(a.pass, 0);
		END IF;
	END IF;

	IF more AND (op <> 'acquire' OR holds) THEN
		a.pass := -1;
	ELSIF more THEN
		a.status := 'again';
	END IF;

	IF l IS DISTINCT FROM before THEN
		UPDATE interlock t SET token = l.token, owner = l.owner, process = l.process, metadata = l.metadata, proof = l.proof, since = l.since,
			expires = l.expires, unclaimed = l.unclaimed, shares = l.shares, permits = l.permits, weight = l.weight, slots = l.slots, pushed = l.pushed,
			waiters = l.waiters, last = l.last, served = l.served, watcher = l.watcher, suspects = l.suspects, lapsed = l.lapsed,
			informed = l.informed, asked = l.asked, asked_process = l.asked_process, asked_at = l.asked_at, ended = l.ended
			WHERE t.name = n;
	END IF;
	PERFORM interlock_commit(a.status = 'granted' OR a.renewed IS NOT NULL OR a.pass <> 0 OR op IN ('break', 'downgrade') OR op = 'end' AND flag, waits);
	RETURN a;
END $$;
