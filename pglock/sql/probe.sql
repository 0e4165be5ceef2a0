-- $1 the table, quoted
SELECT coalesce(to_regclass($1)::oid::bigint, 0), coalesce(obj_description(to_regclass($1), 'pg_class'), ''),
	current_setting('transaction_read_only') = 'on', current_setting('server_version_num')::int,
	pg_backend_pid(),
	-- whether also a statement that reads a few rows by an index would have a bad plan, or be compiled
	'off' IN (current_setting('enable_indexscan'), current_setting('enable_nestloop'), current_setting('enable_sort'))
		OR current_setting('jit')::bool AND current_setting('jit_above_cost')::float BETWEEN 0 AND 99999
