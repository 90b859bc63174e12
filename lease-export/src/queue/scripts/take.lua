-- Takes the first job. KEYS: ready, hidden, job. ARGV: visibility in milliseconds.
-- Returns the job's id, body, number of deliveries, and milliseconds since it was enqueued.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- Due jobs go to the end: at the front, a job that cannot run would block the others.
local due = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now, 'LIMIT', 0, 100)
for place = 1, #due do
    redis.call('ZREM', KEYS[2], due[place])
    redis.call('RPUSH', KEYS[1], due[place])
end
local id = redis.call('LPOP', KEYS[1])
if not id then
    return false
end
redis.call('ZADD', KEYS[2], now + ARGV[1], id)
local number = redis.call('HINCRBY', KEYS[3], id .. ':number', 1)
local job = redis.call('HMGET', KEYS[3], id .. ':body', id .. ':at')
return { tonumber(id), job[1], number, math.max(now - job[2], 0) }
