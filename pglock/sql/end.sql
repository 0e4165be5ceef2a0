-- Ends a grant or an attempt; op is end or forget. A lock without waiters is freed without the rule.
CREATE OR REPLACE FUNCTION interlock_end(
	op text, n bytea, self text, sender text, late boolean, secret text, waits boolean
) RETURNS interlock_answer LANGUAGE plpgsql SET jit = off SET enable_seqscan = off AS $$
DECLARE
	a interlock_answer := ROW('', 0, 0, '', 0, 0, true, false, 0, '', '', 0, 0, '', NULL);
BEGIN
	IF op = 'end' AND NOT late THEN
		a.clock := interlock_clock();
		PERFORM FROM interlock t WHERE t.name = n AND t.owner = self AND t.waiters = 0 AND t.expires > a.clock FOR UPDATE SKIP LOCKED;
		IF FOUND THEN
			UPDATE interlock t SET owner = NULL, unclaimed = false, expires = a.clock WHERE t.name = n;
			IF waits THEN PERFORM set_config('synchronous_commit', 'off', true); END IF;
			a.status := 'ended';
			RETURN a;
		END IF;
	END IF;
	RETURN interlock_rule(op, n, self, sender, '', 0, 0, 0, late, '', secret, waits);
END $$;
