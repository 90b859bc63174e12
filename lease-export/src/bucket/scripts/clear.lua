-- Removes all buckets if the intake is stopped.
-- KEYS: index, state, prefix of the buckets' keys.
-- Returns the number of buckets, or nothing if the intake is open.
if redis.call('HGET', KEYS[2], 'intake') == 'open' then
    return false
end
local buckets = redis.call('ZRANGE', KEYS[1], 0, -1)
for place = 1, #buckets do
    redis.call('DEL', KEYS[3] .. buckets[place])
end
redis.call('DEL', KEYS[1])
return #buckets
