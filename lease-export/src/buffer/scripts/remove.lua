-- Removes exactly the named events.
-- KEYS: stream, state. ARGV: token, positions.
-- Answers how many were there.
local removed = 0
-- Lua's stack does not take all of them at once.
for first = 2, #ARGV, 1000 do
    local last = math.min(first + 999, #ARGV)
    removed = removed + redis.call('XDEL', KEYS[1], unpack(ARGV, first, last))
end
return removed
