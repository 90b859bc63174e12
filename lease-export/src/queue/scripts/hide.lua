-- Hides a job from workers if this is its last delivery.
-- KEYS: ready, hidden, job. ARGV: id, number of the delivery, milliseconds.
-- Returns 1, or 0 if this is an earlier delivery.
if redis.call('HGET', KEYS[3], ARGV[1] .. ':number') ~= ARGV[2]
    or redis.call('ZREM', KEYS[2], ARGV[1]) == 0 then
    return 0
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[2], now + ARGV[3], ARGV[1])
return 1
