-- Reads a piece of a bucket.
-- KEYS: index, state, prefix of the buckets' keys. ARGV: bucket, start, size of the piece in bytes,
-- bytes per entry beside its text.
-- Returns the start of the next piece (0 after the last piece), then keys and values in turn.
--
-- The start is a cursor of HSCAN. One step of HSCAN may return many entries: a whole listpack, or a
-- chain of a hash that is being resized. If a piece ends within a step, the next start has that
-- step's cursor and the digests of the returned entries.
local hash, left, beside = KEYS[3] .. ARGV[1], math.max(1, tonumber(ARGV[3])), tonumber(ARGV[4])
local words = string.gmatch(ARGV[2], '%S+')
local cursor = words()
local in_earlier_pieces = {}
for digest in words do
    in_earlier_pieces[digest] = true
end

local function digests_of(found, first)
    local digests = {}
    for digest in pairs(in_earlier_pieces) do
        table.insert(digests, digest)
    end
    for place = first, #found, 2 do
        table.insert(digests, redis.sha1hex(found[place]))
    end
    return table.concat(digests, ' ')
end

local function size(entries, place)
    return #entries[place] + #entries[place + 1] + beside
end

local found, largest = {}, 1
local wanted = 1
repeat
    local step = redis.call('HSCAN', hash, cursor, 'COUNT', wanted)
    local entries, bytes = step[2], 0
    for place = 1, #entries, 2 do
        largest = math.max(largest, size(entries, place))
        bytes = bytes + size(entries, place)
    end
    if wanted > 1 and bytes > left then
        -- Only a step with COUNT 1 returns the same entries again.
        wanted = 1
    else
        local first = #found + 1
        for place = 1, #entries, 2 do
            if next(in_earlier_pieces) == nil or not in_earlier_pieces[redis.sha1hex(entries[place])] then
                if left <= 0 then
                    return { cursor .. ' ' .. digests_of(found, first), found }
                end
                left = left - size(entries, place)
                table.insert(found, entries[place])
                table.insert(found, entries[place + 1])
            end
        end
        in_earlier_pieces = {}
        cursor = step[1]
        -- The length of the next values is unknown. The script asks for half as many entries as
        -- would fit at the largest length so far, since a resizing hash returns twice as many.
        wanted = math.max(1, math.min(32, math.floor(left / largest / 2)))
    end
until cursor == '0' or left <= 0
return { cursor, found }
