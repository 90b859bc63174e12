-- Appends events, all or none.
-- KEYS: stream, state. ARGV: capacity, what to do at it, ids and lines in turn.
-- Answers how many were dropped for it, or why none is kept.
local pending = redis.call('XLEN', KEYS[1])
local intake = redis.call('HGET', KEYS[2], 'intake')
if intake == 'emergency' and pending == 0 then
    redis.call('HDEL', KEYS[2], 'intake')
    intake = false
end
if intake then
    return intake
end
local capacity = tonumber(ARGV[1])
local count = (#ARGV - 2) / 2
local excess = pending + count - capacity
local dropped = 0
if excess > 0 then
    if ARGV[2] == 'pause' then
        redis.call('HSET', KEYS[2], 'intake', 'emergency')
        return 'emergency'
    end
    if ARGV[2] == 'refuse' or count > capacity then
        return 'full'
    end
    dropped = redis.call('XTRIM', KEYS[1], 'MAXLEN', pending - excess)
    redis.call('HINCRBY', KEYS[2], 'dropped', dropped)
end
for place = 3, #ARGV, 2 do
    redis.call('XADD', KEYS[1], '*', 'id', ARGV[place], 'line', ARGV[place + 1])
end
return dropped
