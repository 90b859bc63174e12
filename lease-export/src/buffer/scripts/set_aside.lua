-- Moves exactly the named entries to where nobody reads.
-- KEYS: stream, state, aside. ARGV: token, how many are kept aside at most, positions.
-- Answers how many were there; -1, and moves none, where there is no room for all.
local kept = redis.call('XLEN', KEYS[3])
if kept + #ARGV - 2 > tonumber(ARGV[2]) then
    return -1
end
local moved = 0
for place = 3, #ARGV do
    local entry = redis.call('XRANGE', KEYS[1], ARGV[place], ARGV[place])[1]
    if entry then
        -- First, since a full server lets nothing else be first.
        redis.call('XDEL', KEYS[1], ARGV[place])
        -- Lua's stack does not take all of an entry that somebody else wrote: its beginning is kept.
        redis.call('XADD', KEYS[3], '*', unpack(entry[2], 1, math.min(#entry[2], 1000)))
        moved = moved + 1
    end
end
return moved
