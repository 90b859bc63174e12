-- How many jobs there are. KEYS: ready, hidden, job. A script, since a full server refuses to queue
-- commands for one transaction.
return redis.call('LLEN', KEYS[1]) + redis.call('ZCARD', KEYS[2])
