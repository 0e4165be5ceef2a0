-- Drops the functions of a version, which are named as its type, in the schema of the table.
DO $$
DECLARE
	t record; f regprocedure;
BEGIN
	SELECT typname, typnamespace INTO t FROM pg_type WHERE oid = to_regtype('interlock_answer');
	FOR f IN SELECT oid::regprocedure FROM pg_proc
		WHERE pronamespace = t.typnamespace AND starts_with(proname, 'interlock_') AND right(proname, 13) = right(t.typname, 13) LOOP
		EXECUTE 'DROP FUNCTION ' || f;
	END LOOP;
	DROP TYPE IF EXISTS interlock_answer;
END $$;
