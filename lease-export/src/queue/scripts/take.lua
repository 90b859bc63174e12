-- Takes the job at the front. KEYS: ready, hidden, job. ARGV: visibility.
-- Answers its id, its body, how often it was delivered, and how long ago it was enqueued.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- What is due had its turn: it goes to the end, or it would keep back what can be worked on.
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
