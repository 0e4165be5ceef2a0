-- $1 operations, $2 names, $3 owners, $4 process, $5 late, $6 secrets. An answer for each attempt. No join: see renew_many.
SELECT u.i, (u.a).* FROM (
	SELECT i, interlock_end(k, n, o, $4, l, s, false) AS a
	FROM unnest($1::text[], $2::bytea[], $3::text[], $5::boolean[], $6::text[]) WITH ORDINALITY AS u(k, n, o, l, s, i)
) u
