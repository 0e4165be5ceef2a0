-- $1 name, $2 owner, $3 what ends: 'release' the grant of $2, 'break' that of $2 or, if $2 is '', of any owner, 'pass' an
-- expired lease with waiters; $4 process of the grant, '' for any; $5 secret of the grant, by which the next holder trusts
-- its notification, or ''; $6 whether the transaction must be on disk. The transaction has locked the row.
WITH l AS (
	SELECT * FROM {table} WHERE name = $1 AND place = 0 AND capacity IS NULL AND CASE $3
		WHEN 'pass' THEN expires <= {now} AND served < last
		ELSE expires > {now} AND (owner = $2 OR $2 = '') AND ($4 = '' OR left(process, 16) = $4) END
), doomed AS ( -- waiters of a process that did not claim its grant, and all if the lease ended so long ago that each has died:
	-- a waiter asks when the lease ends, and gives up if the server does not answer for its TTL
	SELECT served, CASE WHEN unclaimed > 0 THEN left(process, 16) ELSE '' END AS process,
		coalesce(expires < {now} - interval '1 hour' - (
			SELECT ttl FROM {table} WHERE name = $1 AND place > l.served ORDER BY place LIMIT 1) * interval '1 millisecond', false) AS everyone
	FROM l WHERE $3 = 'pass'
), removed AS (
	DELETE FROM {table} WHERE name = $1 AND place > (SELECT served FROM doomed WHERE process <> '' OR everyone) AND {dead}
), next AS ( -- The first waiter; after four unclaimed grants in a row the one that asks, which is alive.
	SELECT * FROM {table} WHERE name = $1 AND place = coalesce(
		(SELECT place FROM {table} WHERE $3 = 'pass' AND (SELECT unclaimed FROM l) >= 4 AND waiter = $2 AND place > 0 AND NOT {dead}),
		(SELECT place FROM {table} WHERE name = $1 AND place > (SELECT served FROM l) AND NOT {dead} ORDER BY place LIMIT 1))
), taken AS (
	DELETE FROM {table} WHERE name = $1 AND place = (SELECT place FROM next)
), second AS ( -- is notified when the lease ends: the first one of another process than the holder's, if it is near
	SELECT * FROM (
		SELECT * FROM {table} WHERE name = $1 AND place > (SELECT served FROM l) AND waiter <> (SELECT waiter FROM next)
			AND NOT {dead} ORDER BY place LIMIT 16
	) s ORDER BY left(process, 16) = (SELECT left(process, 16) FROM next), place LIMIT 1
), changed AS (
	UPDATE {table} t SET token = CASE WHEN next.waiter IS NULL THEN t.token ELSE greatest(t.token + 1, {us}) END,
		owner = next.waiter, process = next.process, metadata = next.metadata, granted = {now},
		expires = CASE WHEN next.waiter IS NOT NULL THEN {now} + least(next.ttl, 3000) * interval '1 millisecond' END,
		unclaimed = CASE WHEN next.waiter IS NULL THEN 0 WHEN $3 = 'pass' THEN t.unclaimed + 1 ELSE 1 END,
		served = CASE WHEN next.waiter IS NULL THEN t.last
			WHEN $3 = 'pass' AND t.unclaimed >= 4 AND next.waiter = $2 THEN t.served ELSE next.place END
	FROM l LEFT JOIN next ON true WHERE t.name = $1 AND t.place = 0
	RETURNING t.owner, t.process, t.token, t.expires
)
SELECT $2::text, concat_ws(' ', l.owner, l.token, {micros l.expires - {now}}, {micros {now} - l.granted}, 0, 0, '', coalesce(l.metadata, '')),
	changed.owner IS NOT NULL, coalesce(left(changed.process, 16), ''), coalesce(left(second.process, 16), ''), false,
	CASE WHEN $3 = 'break' THEN pg_notify('{channel}' || left(l.process, 16), 'l ' || l.owner) END::text,
	-- To the new holder: owner, token, expiry, remaining lease, name, secret.
	CASE WHEN changed.owner IS NOT NULL THEN pg_notify('{channel}' || left(changed.process, 16), concat_ws(' ', 'g', changed.owner,
		changed.token, {micros changed.expires}, {micros changed.expires - {now}}, encode($1, 'hex'), nullif($5, ''))) END::text,
	NULL, CASE WHEN second.waiter IS NOT NULL THEN {notify second} END::text, NULL, NULL,
	{commit changed.owner IS NULL AND NOT $6 AND $3 <> 'break'}
FROM l CROSS JOIN changed LEFT JOIN second ON true
UNION ALL -- the lock was used with shares: end_any.sql
SELECT $2::text, '', false, '', '', true, NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM {table} WHERE name = $1 AND place = 0 AND capacity IS NOT NULL
