-- Reads the oldest events under a token that was not overtaken.
-- KEYS: stream, state. ARGV: token, where to begin, how many events, about how many bytes.
-- Answers entries, or the largest token.
local largest = redis.call('HGET', KEYS[2], 'token')
if largest and tonumber(ARGV[1]) < tonumber(largest) then
    return largest
end
redis.call('HSET', KEYS[2], 'token', ARGV[1])
local from, events, bytes = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local entries = {}
-- Piece by piece, since nobody knows before how long the lines are.
while events > 0 do
    local wanted = math.min(events, 256)
    local piece = redis.call('XRANGE', KEYS[1], from, '+', 'COUNT', wanted)
    for _, entry in ipairs(piece) do
        table.insert(entries, entry)
        bytes = bytes - #entry[2][4]
        if bytes <= 0 then
            return entries
        end
    end
    if #piece < wanted then
        return entries
    end
    events = events - wanted
    from = '(' .. piece[#piece][1]
end
return entries
