-- Reads a piece of a bucket.
-- KEYS: index, state, prefix of the buckets' keys.
-- ARGV: bucket, cursor, size of the piece in bytes, bytes per entry beside its text.
-- Returns the next cursor, which is 0 after the last piece, then keys and values in turn.
local hash, cursor, left, beside = KEYS[3] .. ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local found, largest = {}, 1
local wanted = 1
repeat
    -- The length of the next values is unknown. Ask for half as many as would fit at the
    -- largest length so far: a hash that is being resized returns twice as many.
    local scanned = redis.call('HSCAN', hash, cursor, 'COUNT', wanted)
    cursor = scanned[1]
    for place = 1, #scanned[2], 2 do
        local key, value = scanned[2][place], scanned[2][place + 1]
        local bytes = #key + #value + beside
        largest = math.max(largest, bytes)
        left = left - bytes
        table.insert(found, key)
        table.insert(found, value)
    end
    wanted = math.max(1, math.min(32, math.floor(left / largest / 2)))
until cursor == '0' or left <= 0
return { cursor, found }
