SELECT name, place, waiter, owner, process, metadata, granted, expires, ttl, weight, slots, token, unclaimed, capacity, served, last, tail, tombstones FROM {table} LIMIT 0
