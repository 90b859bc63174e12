-- Runs before another script, and ends that script if a larger token was seen. KEYS: any, state. ARGV: token.
-- In this case, returns the largest token.
local largest = redis.call('HGET', KEYS[2], 'token')
if largest and tonumber(ARGV[1]) < tonumber(largest) then
    return largest
end
if largest ~= ARGV[1] then
    -- HDEL comes first: a full server refuses a script's first write if it may need memory, but lets a
    -- script continue after a removal. So a full buffer can be drained.
    redis.call('HDEL', KEYS[2], 'token')
    redis.call('HSET', KEYS[2], 'token', ARGV[1])
end

