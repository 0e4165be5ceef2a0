-- $1 name, $2 owner, $3 what ends: 'release' the grant of $2, 'break' that of $2 or, if $2 is '', all, 'pass' what has
-- expired, for the waiters, 'admit' nothing, 'overdue' the waiters of the first waiter's process if that has not answered in time; $4 process of the grant, '' for any; $5 secret of the grant, by which the next
-- holder trusts its notification, or ''; $6 whether the transaction must be on disk. The transaction has locked the row.
-- Then the head of the queue is granted, and those behind it, as long as each fits beside the holders. This is end.sql for
-- a lock that was used with shares; it is several times the work of a server.
WITH l AS (
	SELECT *, weight > 0 AND expires <= {now} AS stale FROM {table} WHERE name = $1 AND place = 0 AND CASE
		WHEN weight > 0 THEN $3 <> 'pass' OR expires <= {now}
		WHEN $3 = 'pass' THEN expires <= {now} AND served < last
		ELSE $3 NOT IN ('admit', 'overdue') AND expires > {now} AND (owner = $2 OR $2 = '') AND ($4 = '' OR left(process, 16) = $4) END
), mine AS ( -- Of shared holders; with an exclusive one, or if none may have expired, no row is read.
	DELETE FROM {table} h WHERE h.waiter = (SELECT $2 FROM l WHERE weight > 0 AND $3 IN ('release', 'break')) AND h.name = $1
		AND h.place < {shared} AND ($4 = '' OR left(h.process, 16) = $4)
	RETURNING h.*
), others AS ( -- in a break of all; the transaction has locked them
	DELETE FROM {table} h WHERE h.name = $1
		AND h.place < (SELECT {shared}::bigint FROM l WHERE weight > 0 AND $3 = 'break' AND $2 = '')
	RETURNING h.*
), expired AS ( -- A holder that a transaction with Guard has locked stays until that ends: the others do not wait for it.
	DELETE FROM {table} h USING (
		SELECT waiter FROM {table} WHERE name = $1
			AND place < (SELECT {shared}::bigint FROM l WHERE stale AND NOT ($3 = 'break' AND $2 = ''))
			AND expires <= {now} AND (waiter <> $2 OR $3 = 'pass')
		FOR UPDATE SKIP LOCKED
	) e WHERE h.waiter = e.waiter
	RETURNING h.*
), gone AS (
	SELECT * FROM mine UNION ALL SELECT * FROM others UNION ALL SELECT * FROM expired
), tombstone AS (
	INSERT INTO {table} (name, place, waiter, expires)
	SELECT $1, {tombstone place}, $2, {now} + {tombstone ttl} FROM mine WHERE $6
), ended AS (
	SELECT waiter, token, process, metadata, granted, expires, weight, slots FROM gone WHERE expires > {now}
	UNION ALL SELECT owner, token, process, metadata, granted, expires, 0, NULL FROM l WHERE weight = 0 AND $3 <> 'pass'
), held AS ( -- by those that stay
	SELECT used, CASE WHEN used > 0 THEN expires END AS expires, CASE WHEN capacity > 0 THEN capacity - used END AS room
	FROM (
		SELECT l.capacity, CASE WHEN l.stale THEN coalesce(s.weight, 0) ELSE l.weight - coalesce((SELECT sum(weight) FROM gone), 0) END AS used,
			CASE WHEN l.stale THEN s.expires ELSE l.expires END AS expires
		FROM l LEFT JOIN LATERAL (
			-- One that has expired and stays is looked at again soon.
			SELECT sum(h.weight) AS weight, min(CASE WHEN h.expires > {now} THEN h.expires ELSE {now} + interval '250 milliseconds' END) AS expires FROM {table} h WHERE l.stale AND h.name = $1
				AND h.place < {shared} AND h.waiter NOT IN (SELECT waiter FROM gone)
		) s ON true
	) u
), silent AS ( -- the first waiter, if its process was asked whether it is alive and has not answered in time
	SELECT * FROM (
		SELECT * FROM {table} WHERE name = $1 AND place > (SELECT served FROM l WHERE $3 = 'overdue') ORDER BY place LIMIT 1
	) first WHERE unclaimed > 0 AND expires <= {now}
), doomed AS ( -- waiters of a process that did not claim its grant, those of a silent one, and all if the lease ended so long ago that each has died:
	-- a waiter asks when the lease ends, and gives up if the server does not answer for its TTL
	SELECT left(process, 16) AS process FROM l WHERE weight = 0 AND $3 = 'pass' AND unclaimed > 0
	UNION ALL SELECT left(process, 16) FROM gone WHERE unclaimed > 0 AND expires <= {now}
	UNION ALL SELECT left(process, 16) FROM silent
	UNION ALL SELECT '*' FROM l CROSS JOIN held WHERE $3 = 'pass'
		AND CASE WHEN l.weight = 0 THEN l.expires WHEN used = 0 THEN (SELECT max(expires) FROM gone) END < {now} - interval '1 hour' - (
			SELECT ttl FROM {table} WHERE name = $1 AND place > l.served ORDER BY place LIMIT 1) * interval '1 millisecond'
), removed AS (
	DELETE FROM {table} WHERE name = $1 AND place > (SELECT served FROM l WHERE EXISTS (SELECT FROM doomed)) AND {doomed}
), asks AS ( -- After four unclaimed grants in a row the one that asks, which is alive, is granted out of turn.
	SELECT place FROM {table} WHERE $3 = 'pass' AND (SELECT unclaimed FROM l WHERE EXISTS (SELECT FROM doomed)) >= 4
		AND waiter = $2 AND place > 0 AND NOT {doomed} AND {fits}
), head AS (
	SELECT * FROM {table} WHERE {fits} AND name = $1 AND place = coalesce((SELECT place FROM asks),
		(SELECT place FROM {table} WHERE name = $1 AND place > (SELECT served FROM l) AND NOT {doomed} ORDER BY place LIMIT 1))
), next AS ( -- is exclusive
	DELETE FROM {table} t USING head WHERE head.weight = 0 AND t.name = $1 AND t.place = head.place
	RETURNING t.*
), candidates AS ( -- Readers up to the first writer, or as many as there are permits.
	SELECT * FROM {table} WHERE name = $1 AND place >= (SELECT place FROM head WHERE weight > 0) AND NOT {doomed}
		AND place < coalesce((SELECT place FROM {table} WHERE name = $1 AND weight = 0 AND NOT {doomed}
			AND place > (SELECT place FROM head WHERE weight > 0 AND (SELECT capacity FROM l) = 0)
			ORDER BY place LIMIT 1), 9223372036854775807)
	ORDER BY place LIMIT CASE WHEN EXISTS (SELECT FROM asks) THEN 1 ELSE (SELECT room FROM held) END
), admitted AS (
	SELECT * FROM (
		SELECT place, token, sum(weight) OVER w AS total, bool_or(weight = 0) OVER w AS stopped, row_number() OVER w AS n
		FROM candidates WINDOW w AS (ORDER BY place)
	) c WHERE NOT stopped AND total <= coalesce((SELECT room FROM held), total)
), free AS (
	SELECT slot, row_number() OVER (ORDER BY slot) AS n
	FROM generate_series(0, (SELECT capacity - 1 FROM l WHERE EXISTS (SELECT FROM admitted))) slot
	WHERE slot NOT IN (SELECT unnest(slots) FROM {table} WHERE name = $1 AND place < {shared} AND waiter NOT IN (SELECT waiter FROM gone))
), granted AS (
	UPDATE {table} t SET place = {shared place a.token}, token = a.token, granted = {now}, unclaimed = 1,
		expires = {now} + least(t.ttl, 3000) * interval '1 millisecond',
		slots = ARRAY(SELECT slot::int FROM free WHERE n > total - t.weight AND n <= total ORDER BY slot)
	FROM (SELECT admitted.place, total, greatest(l.token + 1, {us}) + n - 1 AS token FROM admitted CROSS JOIN l) a
	WHERE t.name = $1 AND t.place = a.place
	RETURNING t.waiter, t.process, t.token, t.expires, t.weight, a.place AS was
), handed AS (
	SELECT sum(weight) AS weight, max(was) AS last, min(expires) AS expires, max(token) AS token,
		(array_agg(process ORDER BY token DESC))[1] AS process,
		CASE WHEN min(left(process, 16)) = max(left(process, 16)) THEN min(left(process, 16)) END AS only
	FROM granted
), second AS ( -- is notified when the lease ends: the first one of another process than the holder's, if it is near
	SELECT * FROM (
		SELECT * FROM {table} WHERE name = $1 AND waiter <> (SELECT waiter FROM head) AND NOT {doomed} AND place > (
			SELECT CASE WHEN EXISTS (SELECT FROM asks) THEN l.served ELSE coalesce(handed.last, head.place) END FROM l, head, handed)
		ORDER BY place LIMIT 16
	) s ORDER BY left(process, 16) IN (SELECT left(process, 16) FROM next UNION ALL SELECT left(process, 16) FROM granted), place LIMIT 1
), blocked AS ( -- If shares follow an exclusive holder, those that still wait ask from now on whether the first waiter is alive.
	SELECT DISTINCT ON (left(process, 16)) * FROM (
		SELECT * FROM {table} WHERE name = $1 AND NOT {doomed} AND place > (SELECT CASE
				WHEN handed.last IS NULL THEN CASE $3 WHEN 'admit' THEN l.served END
				WHEN EXISTS (SELECT FROM asks) THEN l.served ELSE handed.last END
			FROM l CROSS JOIN handed WHERE $3 = 'admit' OR l.weight = 0)
		ORDER BY place LIMIT 16
	) b WHERE weight > 0 AND waiter NOT IN (SELECT t.waiter FROM granted t) ORDER BY left(process, 16), place
), changed AS (
	UPDATE {table} t SET token = CASE WHEN next.waiter IS NULL THEN greatest(t.token, handed.token) ELSE greatest(t.token + 1, {us}) END,
		owner = CASE WHEN next.waiter IS NOT NULL THEN next.waiter WHEN used > 0 OR handed.last IS NOT NULL THEN 'shared' END,
		-- If a shared holder ends whose hash this is, no waiter may trust its secret.
		process = CASE WHEN next.waiter IS NOT NULL THEN next.process WHEN handed.last IS NOT NULL THEN handed.process
			WHEN t.process IN (SELECT process FROM gone) THEN '' ELSE t.process END,
		metadata = next.metadata, granted = {now}, weight = used + coalesce(handed.weight, 0),
		expires = CASE WHEN next.waiter IS NOT NULL THEN {now} + least(next.ttl, 3000) * interval '1 millisecond'
			ELSE least(held.expires, handed.expires) END,
		unclaimed = CASE WHEN head.waiter IS NULL THEN 0 WHEN $3 = 'pass' AND (t.weight = 0 OR EXISTS (SELECT FROM doomed)) THEN t.unclaimed + 1 ELSE 1 END,
		served = CASE WHEN head.waiter IS NULL AND used = 0 THEN t.last
			WHEN head.waiter IS NULL OR EXISTS (SELECT FROM asks) THEN t.served ELSE coalesce(handed.last, head.place) END
	FROM l CROSS JOIN held CROSS JOIN handed LEFT JOIN head ON true LEFT JOIN next ON true WHERE t.name = $1 AND t.place = 0
	RETURNING t.owner, t.token, t.expires, t.capacity, head.waiter IS NOT NULL AS passed,
		coalesce(left(next.process, 16), handed.only, '') AS next, next.waiter IS NOT NULL AS exclusive, t.process
)
SELECT $2::text, coalesce((SELECT {share} FROM ended h CROSS JOIN l ORDER BY h.token LIMIT 1), ''), changed.passed, changed.next, coalesce(left(second.process, 16), ''), false,
	(SELECT count(pg_notify('{channel}' || left(process, 16), 'l ' || waiter)::text) FROM ended WHERE $3 = 'break'),
	-- To the new holder: owner, token, expiry, remaining lease, name, secret.
	CASE WHEN changed.exclusive THEN pg_notify('{channel}' || changed.next, concat_ws(' ', 'G', changed.owner,
		changed.token, {micros changed.expires}, {micros changed.expires - {now}}, encode($1, 'hex'), nullif($5, ''))) END::text,
	-- To each process of new shared holders: time of the server, name, secret, and owner, token and expiry of each.
	(SELECT count(pg_notify('{channel}' || process, concat_ws(' ', 's', {us}, encode($1, 'hex'), coalesce(nullif($5, ''), '-'), grants))::text) FROM (
		SELECT process, string_agg(concat_ws(' ', waiter, token, {micros expires}), ' ') AS grants FROM (
			SELECT left(process, 16) AS process, waiter, token, expires, row_number() OVER (PARTITION BY left(process, 16) ORDER BY token) AS i FROM granted
		) g GROUP BY process, (i - 1) / 64
	) m),
	CASE WHEN second.waiter IS NOT NULL THEN {notify second} END::text,
	(SELECT count(pg_notify('{channel}' || left(process, 16), concat_ws(' ', 'h', waiter, {us}, 3000000))::text) FROM blocked),
	(SELECT {notify asked} FROM silent), -- If it lives, it enters its waiters again.
	{commit NOT changed.passed AND NOT $6 AND $3 <> 'break'}
FROM changed LEFT JOIN second ON true
