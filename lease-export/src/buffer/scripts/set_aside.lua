-- Moves exactly the named entries to the stream of events set aside.
-- KEYS: stream, state, aside. ARGV: token, maximum number of events set aside, positions.
-- Returns the number of entries that existed, or -1 if there is no room for all. In that case,
-- moves none.
local kept = redis.call('XLEN', KEYS[3])
if kept + #ARGV - 2 > tonumber(ARGV[2]) then
    return -1
end
local moved = 0
for place = 3, #ARGV do
    local entry = redis.call('XRANGE', KEYS[1], ARGV[place], ARGV[place])[1]
    if entry then
        -- XDEL comes first: a full server refuses a script whose first write may need memory.
        redis.call('XDEL', KEYS[1], ARGV[place])
        -- An entry of another program may have more items than Lua's stack holds. The script keeps
        -- 1,000 items.
        redis.call('XADD', KEYS[3], '*', unpack(entry[2], 1, math.min(#entry[2], 1000)))
        moved = moved + 1
    end
end
return moved
