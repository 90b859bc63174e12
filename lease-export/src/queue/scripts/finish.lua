-- Removes a job if this is its last delivery.
-- KEYS: ready, hidden, job. ARGV: id, number of the delivery.
-- Returns 1, or 0 if this is an earlier delivery.
if redis.call('HGET', KEYS[3], ARGV[1] .. ':number') ~= ARGV[2]
    or redis.call('ZREM', KEYS[2], ARGV[1]) == 0 then
    return 0
end
redis.call('HDEL', KEYS[3], ARGV[1] .. ':body', ARGV[1] .. ':at', ARGV[1] .. ':number')
return 1
