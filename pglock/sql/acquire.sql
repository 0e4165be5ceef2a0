-- A free lock is taken, and what changes nothing is answered, without the rule.
CREATE OR REPLACE FUNCTION interlock_acquire(
	n bytea, self text, sender text, meta text, lease bigint, wt int, cp int, flag boolean, hash text, waits boolean
) RETURNS interlock_answer LANGUAGE plpgsql SET jit = off SET enable_seqscan = off AS $$
DECLARE
	a interlock_answer := ROW('', 0, 0, '', 0, 0, true, false, 0, '', '', 0, 0, '', NULL);
BEGIN
	IF NOT waits THEN
		PERFORM FROM interlock t WHERE t.name = n FOR NO KEY UPDATE SKIP LOCKED;
		IF NOT FOUND THEN RETURN interlock_rule('acquire', n, self, sender, meta, lease, wt, cp, flag, hash, '', false); END IF;
	END IF;
	a.clock := interlock_clock();
	IF wt = 0 THEN
		UPDATE interlock t SET token = greatest(t.token + 1, a.clock), owner = self, process = sender, metadata = meta, proof = hash,
			since = a.clock, expires = a.clock + lease, suspects = '{}', lapsed = false, informed = 0
			WHERE t.name = n AND t.owner IS NULL AND t.shares = 0 AND t.waiters = 0 AND t.ended <= a.clock RETURNING t.token INTO a.token;
		IF FOUND THEN
			IF current_setting('synchronous_commit') = 'off' THEN PERFORM interlock_commit(true, true); END IF;
			a.status := 'granted'; a.remaining := lease;
			RETURN a;
		END IF;
	END IF;
	a.clock := interlock_clock();
	SELECT 'held', t.token, t.expires - a.clock, p.kind IS NULL, t.unclaimed OR coalesce(t.watcher = self, false), t.owner, coalesce(t.metadata, '')
		INTO a.status, a.token, a.remaining, a.no_place, a.watch, a.holder, a.metadata
		FROM interlock t LEFT JOIN interlock_places p ON p.owner = self
		WHERE t.name = n AND t.owner <> self AND t.expires > a.clock AND NOT (t.unclaimed AND t.process = sender)
			AND sender <> ALL (t.suspects) AND t.asked_process IS DISTINCT FROM sender AND (p.kind = 'w' OR p.kind IS NULL AND NOT flag);
	IF FOUND THEN RETURN a; END IF;
	RETURN interlock_rule('acquire', n, self, sender, meta, lease, wt, cp, flag, hash, '', waits);
END $$;
