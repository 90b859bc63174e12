-- Returns the number of jobs. KEYS: ready, hidden, job.
-- A script, since a full server refuses to queue a transaction's commands.
return redis.call('LLEN', KEYS[1]) + redis.call('ZCARD', KEYS[2])
