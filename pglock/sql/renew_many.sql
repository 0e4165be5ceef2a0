-- $1 names, $2 which of them each attempt has, from 1, $3 owners, $4 process, $5 microseconds, $6 exactly. An answer for each
-- name: the leases of one lock are extended together.
SELECT g.k, a.* FROM (
	SELECT k, array_agg(o) AS o, array_agg(t) AS t, array_agg(x) AS x
	FROM unnest($2::bigint[], $3::text[], $5::bigint[], $6::boolean[]) AS u(k, o, t, x) GROUP BY k
) g, LATERAL interlock_renew(($1::bytea[])[g.k], g.o, $4, g.t, g.x, false) a
