-- Removes exactly the named keys of a bucket, and the bucket if no key is left.
-- KEYS: index, state, prefix of the buckets' keys. ARGV: token, bucket, keys.
-- Returns the number of keys that existed.
local removed = 0
for place = 3, #ARGV do
    removed = removed + redis.call('HDEL', KEYS[3] .. ARGV[2], ARGV[place])
end
if redis.call('EXISTS', KEYS[3] .. ARGV[2]) == 0 then
    redis.call('ZREM', KEYS[1], ARGV[2])
end
return removed
