SELECT name, token, owner, process, metadata, granted, expires, queue, gone FROM {table} LIMIT 0
