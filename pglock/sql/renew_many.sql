-- $1 names, $2 and $3 where the attempts of each begin and end in the other arrays, $4 owners, $5 process, $6 microseconds,
-- $7 exactly. An answer for each name: the leases of one lock are extended together. It is no join, because for a role
-- with enable_nestloop=off the server would compile one. The function is volatile, so a row calls it once.
SELECT u.i, (u.a).* FROM (
	SELECT i, interlock_renew(n, ($4::text[])[b:e], $5, ($6::bigint[])[b:e], ($7::boolean[])[b:e], false) AS a
	FROM unnest($1::bytea[], $2::bigint[], $3::bigint[]) WITH ORDINALITY AS u(n, b, e, i)
) u
