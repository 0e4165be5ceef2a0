SELECT FROM {table}
WHERE name = $1 AND place = 0 AND owner = $2 AND token = $3 AND expires > clock_timestamp()
FOR SHARE
