-- Extends a grant. The lease of an exclusive lock without waiters is extended without the rule.
CREATE OR REPLACE FUNCTION interlock_renew(
	n bytea, self text, sender text, lease bigint, exactly boolean, waits boolean
) RETURNS interlock_answer LANGUAGE plpgsql SET jit = off SET enable_seqscan = off AS $$
DECLARE
	a interlock_answer := ROW('', 0, 0, '', 0, 0, true, false, 0, '', '', 0, 0, '');
BEGIN
	IF NOT waits THEN
		PERFORM FROM interlock t WHERE t.name = n FOR NO KEY UPDATE SKIP LOCKED;
		IF NOT FOUND THEN RETURN interlock_rule('renew', n, self, sender, '', lease, 0, 0, exactly, '', '', waits); END IF;
	END IF;
	a.clock := interlock_clock();
	UPDATE interlock t SET expires = CASE WHEN exactly THEN a.clock + lease ELSE greatest(t.expires, a.clock + lease) END,
		unclaimed = false, lapses = CASE WHEN t.unclaimed THEN 0 ELSE t.lapses END
		WHERE t.name = n AND t.owner = self AND t.waiters = 0 AND t.expires > a.clock;
	IF NOT FOUND THEN RETURN interlock_rule('renew', n, self, sender, '', lease, 0, 0, exactly, '', '', waits); END IF;
	IF current_setting('synchronous_commit') = 'off' THEN PERFORM interlock_commit(true, true); END IF;
	a.status := 'renewed';
	RETURN a;
END $$;
