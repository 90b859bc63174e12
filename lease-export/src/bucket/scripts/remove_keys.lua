-- Removes exactly the named keys of a bucket, and the bucket where it has no others; leaves the marker.
-- KEYS: index, state, what buckets' names begin with. ARGV: token, bucket, keys.
-- Answers how many were there.
local removed = 0
for place = 3, #ARGV do
    removed = removed + redis.call('HDEL', KEYS[3] .. ARGV[2], ARGV[place])
end
if redis.call('EXISTS', KEYS[3] .. ARGV[2]) == 0 then
    redis.call('ZREM', KEYS[1], ARGV[2])
end
return removed
