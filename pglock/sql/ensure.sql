-- $1 name. As lock.sql, and inserts the row if it is missing.
WITH orphans AS ({remove orphans})
INSERT INTO {table} AS l (name, place, token) SELECT $1, 0, {first token} WHERE {settings} <> ''
ON CONFLICT (name, place) DO UPDATE SET token = l.token WHERE l.token IS NULL
