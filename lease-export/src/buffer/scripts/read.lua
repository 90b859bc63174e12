-- Reads the oldest events.
-- KEYS: stream, state. ARGV: token, start, maximum number of events, approximate bytes, default for
-- the longest line.
-- Returns entries.
local from, events, bytes = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local longest = tonumber(redis.call('HGET', KEYS[2], 'longest') or ARGV[5])
local entries = {}
-- The length of a line is unknown before the read. So each step reads only as many entries as would
-- fit at the longest length.
while events > 0 do
    local wanted = math.max(1, math.min(events, 256, math.floor(bytes / longest)))
    local piece = redis.call('XRANGE', KEYS[1], from, '+', 'COUNT', wanted)
    for _, entry in ipairs(piece) do
        table.insert(entries, entry)
        bytes = bytes - #(entry[2][4] or '')
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
