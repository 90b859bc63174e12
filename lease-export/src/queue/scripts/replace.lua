-- Replaces ready jobs, and jobs whose visibility has ended, by one new job.
-- KEYS: ready, hidden, job. ARGV: body. Returns the id of the new job.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local due = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now)
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
for _, ids in ipairs({ redis.call('LRANGE', KEYS[1], 0, -1), due }) do
    for _, id in ipairs(ids) do
        redis.call('HDEL', KEYS[3], id .. ':body', id .. ':at', id .. ':number')
    end
end
redis.call('DEL', KEYS[1])
local id = redis.call('HINCRBY', KEYS[3], 'last', 1)
redis.call('HSET', KEYS[3], id .. ':body', ARGV[1], id .. ':at', now, id .. ':number', 0)
redis.call('RPUSH', KEYS[1], id)
return id
