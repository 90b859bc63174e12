-- Puts changes into the bucket of this moment. KEYS: index, state, what buckets' names begin with.
-- ARGV: interval, how many buckets there may be, keys and values in turn.
-- Answers the bucket, or why there is none.
local count = redis.call('ZCARD', KEYS[1])
local intake = redis.call('HGET', KEYS[2], 'intake')
if intake == 'emergency' and count == 0 then
    redis.call('HDEL', KEYS[2], 'intake')
    intake = false
end
if intake then
    return intake
end
local interval = tonumber(ARGV[1])
local now = tonumber(redis.call('TIME')[1])
local bucket = now - now % interval
-- Never behind the marker, where nobody would read it, whatever the clock does.
local marker = redis.call('HGET', KEYS[2], 'marker')
if marker then
    bucket = math.max(bucket, marker + interval)
end
if count >= tonumber(ARGV[2]) and not redis.call('ZSCORE', KEYS[1], bucket) then
    redis.call('HSET', KEYS[2], 'intake', 'emergency')
    return 'emergency'
end
redis.call('ZADD', KEYS[1], bucket, bucket)
for place = 3, #ARGV, 2 do
    redis.call('HSET', KEYS[3] .. bucket, ARGV[place], ARGV[place + 1])
end
return bucket
