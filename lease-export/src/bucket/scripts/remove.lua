-- Removes exactly the named buckets, and advances the marker (the latest removed bucket).
-- KEYS: index, state, prefix of the buckets' keys. ARGV: token, buckets.
-- Returns the number of buckets that existed.
local marker = tonumber(redis.call('HGET', KEYS[2], 'marker') or -1)
local removed = 0
for place = 2, #ARGV do
    removed = removed + redis.call('ZREM', KEYS[1], ARGV[place])
    redis.call('DEL', KEYS[3] .. ARGV[place])
    marker = math.max(marker, tonumber(ARGV[place]))
end
if marker >= 0 then
    redis.call('HSET', KEYS[2], 'marker', marker)
end
return removed
