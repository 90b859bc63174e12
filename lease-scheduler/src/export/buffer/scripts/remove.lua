-- Removes exactly the named events under a token that was not overtaken.
-- KEYS: stream, state. ARGV: token, positions.
-- Answers how many were there, or the largest token.
local largest = redis.call('HGET', KEYS[2], 'token')
if largest and tonumber(ARGV[1]) < tonumber(largest) then
    return largest
end
redis.call('HSET', KEYS[2], 'token', ARGV[1])
local removed = 0
-- Lua's stack does not take all of them at once.
for first = 2, #ARGV, 1000 do
    local last = math.min(first + 999, #ARGV)
    removed = removed + redis.call('XDEL', KEYS[1], unpack(ARGV, first, last))
end
return removed
