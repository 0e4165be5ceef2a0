-- $1 name, $2 the owner to remove, '' for any
WITH old AS (
	SELECT token, owner, process, metadata, expires FROM {table}
	WHERE name = $1 AND owner IS NOT NULL AND expires > {now} AND ($2 = '' OR owner = $2) FOR UPDATE
), changed AS (
	UPDATE {table} l SET {hand over} FROM old WHERE l.name = $1
	RETURNING l.token, l.owner, l.process, l.expires, l.queue[1] AS head
)
SELECT old.token, old.owner, coalesce(old.metadata, ''), {micros old.expires - {now}},
	pg_notify('{channel}' || left(old.process, 16), 'l ' || old.owner)::text,
	CASE WHEN changed.owner IS NOT NULL THEN {notify grant} END::text,
	CASE WHEN changed.owner IS NOT NULL AND head IS NOT NULL THEN {notify head} END::text, {commit false}
FROM old, changed
