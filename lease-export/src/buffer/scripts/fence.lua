-- Goes before what may only be done under the largest token. KEYS: anything, state. ARGV: token.
-- Answers the largest, if that is another.
local largest = redis.call('HGET', KEYS[2], 'token')
if largest and tonumber(ARGV[1]) < tonumber(largest) then
    return largest
end
if largest ~= ARGV[1] then
    -- A server that is full refuses a script's first write if it may need room, and lets one go on
    -- that has removed something: so what is full can be drained.
    redis.call('HDEL', KEYS[2], 'token')
    redis.call('HSET', KEYS[2], 'token', ARGV[1])
end

