-- Returns the oldest closed buckets after the marker (the latest removed bucket), and seals them.
-- Sealed buckets take no changes.
-- KEYS: index, state. ARGV: minimum age of a closed bucket's start in seconds, maximum number of
-- buckets.
local marker = redis.call('HGET', KEYS[2], 'marker')
local from = marker and '(' .. marker or '-inf'
local last = redis.call('TIME')[1] - ARGV[1]
local sealed = tonumber(redis.call('HGET', KEYS[2], 'sealed') or -1)
-- A sealed bucket stays closed, even if the clock goes back.
last = math.max(last, sealed)
local found = redis.call('ZRANGEBYSCORE', KEYS[1], from, last, 'LIMIT', 0, ARGV[2])
for place = 1, #found do
    found[place] = tonumber(found[place])
end
if #found > 0 and found[#found] > sealed then
    -- HDEL comes first: a full server refuses a script whose first write may need memory.
    redis.call('HDEL', KEYS[2], 'sealed')
    redis.call('HSET', KEYS[2], 'sealed', found[#found])
end
return found
