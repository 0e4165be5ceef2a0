SELECT name, place, waiter, owner, process, metadata, granted, expires, ttl, token, unclaimed, served, last, tail, tombstones FROM {table} LIMIT 0
