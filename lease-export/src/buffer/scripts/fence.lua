-- Runs before another script. If a larger token was seen, ends that script and returns the largest
-- token.
-- KEYS: any, state. ARGV: token.
local largest = redis.call('HGET', KEYS[2], 'token')
if largest and tonumber(ARGV[1]) < tonumber(largest) then
    return largest
end
if largest ~= ARGV[1] then
    -- HDEL comes first: a full server refuses a script whose first write may need memory. After a
    -- removal, the script may continue.
    redis.call('HDEL', KEYS[2], 'token')
    redis.call('HSET', KEYS[2], 'token', ARGV[1])
end

