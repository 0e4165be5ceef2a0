-- Extends grants of one lock. The lease of an exclusive lock without waiters is extended without the rule.
CREATE OR REPLACE FUNCTION interlock_renew(
	n bytea, owners text[], sender text, leases bigint[], exactly boolean[], waits boolean
) RETURNS interlock_answer LANGUAGE plpgsql SET jit = off SET enable_seqscan = off AS $$
DECLARE
	a interlock_answer := ROW('', 0, 0, '', 0, 0, true, false, 0, '', '', 0, 0, '', NULL);
BEGIN
	IF NOT waits THEN
		PERFORM FROM interlock t WHERE t.name = n FOR NO KEY UPDATE SKIP LOCKED;
	END IF;
	IF waits OR FOUND THEN
		a.clock := interlock_clock();
		UPDATE interlock t SET expires = CASE WHEN exactly[1] THEN a.clock + leases[1] ELSE greatest(t.expires, a.clock + leases[1]) END,
			unclaimed = false, lapsed = t.lapsed AND NOT t.unclaimed
			WHERE t.name = n AND t.owner = owners[1] AND t.waiters = 0 AND t.expires > a.clock AND cardinality(owners) = 1;
		IF FOUND THEN
			IF current_setting('synchronous_commit') = 'off' THEN PERFORM interlock_commit(true, true); END IF;
			a.status := 'renewed'; a.renewed := owners;
			RETURN a;
		END IF;
	END IF;
	RETURN interlock_rule('renew', n, '', sender, '', 0, 0, 0, false, '', '', waits, owners, leases, exactly);
END $$;
