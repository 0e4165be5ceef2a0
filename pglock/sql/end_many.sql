-- Ends attempts of a process, and waits for no row. The commit waits for the disk only if one of the ends needs that.
CREATE OR REPLACE FUNCTION interlock_end_many(
	ops text[], names bytea[], owners text[], sender text, late boolean[], secrets text[]
) RETURNS SETOF interlock_answer LANGUAGE plpgsql SET jit = off AS $$
DECLARE
	a interlock_answer; durable boolean := false;
BEGIN
	FOR i IN 1..cardinality(names) LOOP
		a := interlock_end(ops[i], names[i], owners[i], sender, late[i], secrets[i], false);
		durable := durable OR a.pass <> 0 OR late[i];
		RETURN NEXT a;
	END LOOP;
	PERFORM interlock_commit(durable, true);
END $$;
