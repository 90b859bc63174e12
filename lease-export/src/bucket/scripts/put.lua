-- Puts changes into the bucket of this moment. KEYS: index, state, what buckets' names begin with.
-- ARGV: interval, how many buckets there may be, keys and values in turn.
-- Answers the bucket, or why there is none: full, if this has stopped the intake for lack of room.
local count = redis.call('ZCARD', KEYS[1])
local why = stopped(KEYS[2], count, 'stopped')
if why then
    return why
end
local interval = tonumber(ARGV[1])
local now = tonumber(redis.call('TIME')[1])
local bucket = now - now % interval
-- Never at or behind the marker, where nobody would read it, nor into what is being read, whatever
-- the clock does.
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
