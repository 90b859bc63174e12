-- Removes exactly the named keys of a bucket.
-- KEYS: index, state, what buckets' names begin with. ARGV: token, bucket, keys.
-- Answers how many were there.
local removed = 0
for place = 3, #ARGV do
    removed = removed + redis.call('HDEL', KEYS[3] .. ARGV[2], ARGV[place])
end
return removed
