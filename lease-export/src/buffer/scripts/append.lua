-- Appends events, all or none.
-- KEYS: stream, state. ARGV: capacity, what to do at it, ids and lines in turn.
-- Answers how many were dropped for it, or why none is kept: paused, if this has stopped the intake.
local pending = redis.call('XLEN', KEYS[1])
local why = stopped(KEYS[2], pending, 'open')
if why then
    return why
end
local capacity = tonumber(ARGV[1])
local count = (#ARGV - 2) / 2
local excess = pending + count - capacity
local dropped = 0
if excess > 0 then
    if ARGV[2] == 'pause' then
        redis.call('HSET', KEYS[2], 'intake', 'emergency')
        return 'paused'
    end
    if ARGV[2] == 'refuse' or count > capacity then
        return 'full'
    end
    dropped = redis.call('XTRIM', KEYS[1], 'MAXLEN', pending - excess)
    redis.call('HINCRBY', KEYS[2], 'dropped', dropped)
end
-- How long a line may be among those that are pending: whoever reads fetches no more than he may.
local longest = pending > 0 and redis.call('HGET', KEYS[2], 'longest') or '0'
local longer = tonumber(longest)
for place = 3, #ARGV, 2 do
    longer = math.max(longer, #ARGV[place + 1])
    redis.call('XADD', KEYS[1], '*', 'id', ARGV[place], 'line', ARGV[place + 1])
end
if longer ~= tonumber(longest) then
    redis.call('HSET', KEYS[2], 'longest', longer)
end
return dropped
