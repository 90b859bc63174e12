-- Appends events, all or none.
-- KEYS: stream, state. ARGV: capacity, overflow policy, then ids and lines in turn.
-- Returns the number of dropped events, or why the intake is stopped: `paused` if this call stopped
-- the intake.
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
-- `longest` is the length of the longest line that may be pending. A read bounds the size of its
-- answer by `longest`.
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
