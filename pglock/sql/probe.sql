-- $1 the table, $2 a function, as text
SELECT coalesce(to_regclass($1)::oid::bigint, 0), coalesce(obj_description(to_regclass($1), 'pg_class'), ''), to_regproc($2) IS NOT NULL,
	current_setting('transaction_read_only') = 'on', current_setting('server_version_num')::int, pg_backend_pid()
