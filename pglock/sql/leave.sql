-- $1 name, $2 owner, $3 whether to leave a tombstone, which refuses requests of the attempt that arrive later. The attempt
-- leaves the queue. The transaction has locked the row.
WITH l AS (
	SELECT * FROM {table} WHERE name = $1 AND place = 0
), mine AS (
	SELECT w.place FROM {table} w, l WHERE w.waiter = $2 AND w.place > 0
), second AS ( -- was behind the first waiter, which leaves
	SELECT * FROM {table} WHERE name = $1 AND place > (SELECT place FROM mine)
		AND NOT EXISTS (SELECT FROM {table} w, l, mine WHERE w.name = $1 AND w.place > l.served AND w.place < mine.place)
	ORDER BY place LIMIT 1
), gone AS (
	DELETE FROM {table} WHERE waiter = $2 AND place > 0 AND NOT $3
), void AS (
	DELETE FROM {table} WHERE name = $1 AND place BETWEEN {shared} AND -1 AND expires <= {now} AND waiter <> $2
), tombstone AS (
	INSERT INTO {table} AS t (name, place, waiter, expires)
	SELECT $1, {tombstone place}, $2, {now} + {tombstone ttl} WHERE $3
	-- Of a shared holder end.sql leaves the tombstone.
	ON CONFLICT (waiter) DO UPDATE SET place = excluded.place, expires = excluded.expires WHERE t.place >= {shared}
), changed AS (
	UPDATE {table} SET tombstones = CASE WHEN $3 THEN {now} + {tombstone ttl} ELSE tombstones END
	WHERE name = $1 AND place = 0
	RETURNING *
)
SELECT CASE WHEN second.waiter IS NOT NULL AND changed.expires IS NOT NULL THEN {notify second} END::text, {commit NOT $3}
FROM changed LEFT JOIN second ON true
