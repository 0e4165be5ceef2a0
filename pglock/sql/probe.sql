-- $1 the table, quoted
SELECT coalesce(to_regclass($1)::oid::bigint, 0), coalesce(obj_description(to_regclass($1), 'pg_class'), ''),
	current_setting('transaction_read_only') = 'on', current_setting('server_version_num')::int,
	pg_backend_pid()
