-- $1 operations, $2 names, $3 owners, $4 process, $5 late, $6 secrets. An answer for each attempt.
SELECT u.i, a.* FROM unnest($1::text[], $2::bytea[], $3::text[], $5::boolean[], $6::text[]) WITH ORDINALITY AS u(k, n, o, l, s, i),
	LATERAL interlock_end(u.k, u.n, u.o, $4, u.l, u.s, false) a
