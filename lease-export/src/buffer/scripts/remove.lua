-- Removes exactly the named events.
-- KEYS: stream, state. ARGV: token, positions.
-- Returns the number of events that existed.
local removed = 0
-- Removes in chunks, since Lua's stack is limited.
for first = 2, #ARGV, 1000 do
    local last = math.min(first + 999, #ARGV)
    removed = removed + redis.call('XDEL', KEYS[1], unpack(ARGV, first, last))
end
return removed
