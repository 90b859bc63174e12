-- Puts changes into the current bucket.
-- KEYS: index, state, prefix of the buckets' keys. ARGV: interval, maximum number of buckets, then
-- keys and values in turn.
-- Returns the bucket, or why the intake is stopped: `full` if this call stopped the intake for lack
-- of room.
local count = redis.call('ZCARD', KEYS[1])
local why = stopped(KEYS[2], count, 'stopped')
if why then
    return why
end
local interval = tonumber(ARGV[1])
local now = tonumber(redis.call('TIME')[1])
local bucket = now - now % interval
-- The clock may have gone back. Changes go into a bucket after the marker (the latest removed
-- bucket) and after the last sealed bucket. An exporter never reads earlier buckets again.
for _, last in ipairs({ 'marker', 'sealed' }) do
    bucket = math.max(bucket, (redis.call('HGET', KEYS[2], last) or -interval) + interval)
end
if count >= tonumber(ARGV[2]) and not redis.call('ZSCORE', KEYS[1], bucket) then
    redis.call('HSET', KEYS[2], 'intake', 'emergency')
    return 'full'
end
redis.call('ZADD', KEYS[1], bucket, bucket)
for place = 3, #ARGV, 2 do
    redis.call('HSET', KEYS[3] .. bucket, ARGV[place], ARGV[place + 1])
end
return bucket
