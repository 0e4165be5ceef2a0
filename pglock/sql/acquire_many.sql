-- $1 names, $2 owners, $3 process, $4 metadata, $5 microseconds, $6 weights, $7 capacities, $8 enter the queue, $9 hashes. An
-- answer for each attempt. No join: see renew_many.
SELECT u.i, (u.a).* FROM (
	SELECT i, interlock_acquire(n, o, $3, m, t, w, c, q, h, false) AS a
	FROM unnest($1::bytea[], $2::text[], $4::text[], $5::bigint[], $6::int[], $7::int[], $8::boolean[], $9::text[]) WITH ORDINALITY
		AS u(n, o, m, t, w, c, q, h, i)
) u
