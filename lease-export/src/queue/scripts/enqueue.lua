-- Appends a job. KEYS: ready, hidden, job. ARGV: body. Returns the job's id.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local id = redis.call('HINCRBY', KEYS[3], 'last', 1)
redis.call('HSET', KEYS[3], id .. ':body', ARGV[1], id .. ':at', now, id .. ':number', 0)
redis.call('RPUSH', KEYS[1], id)
return id
