-- $1 name. As lock.sql, and inserts the row if it is missing.
INSERT INTO {table} (name, place, token) VALUES ($1, 0, {first token})
ON CONFLICT (name, place) DO UPDATE SET token = excluded.token WHERE {use indexes} IS NULL
