-- The oldest buckets after the marker that are closed, and seals them: nothing is put into them any
-- more, also if the clock goes back. KEYS: index, state.
-- ARGV: how old a closed bucket's beginning is, how many are asked for.
local marker = redis.call('HGET', KEYS[2], 'marker')
local from = marker and '(' .. marker or '-inf'
local last = redis.call('TIME')[1] - ARGV[1]
local sealed = tonumber(redis.call('HGET', KEYS[2], 'sealed') or -1)
-- What was sealed is closed, whatever the clock says now.
last = math.max(last, sealed)
local found = redis.call('ZRANGEBYSCORE', KEYS[1], from, last, 'LIMIT', 0, ARGV[2])
for place = 1, #found do
    found[place] = tonumber(found[place])
end
if #found > 0 and found[#found] > sealed then
    -- A full server lets nothing be first that may need room.
    redis.call('HDEL', KEYS[2], 'sealed')
    redis.call('HSET', KEYS[2], 'sealed', found[#found])
end
return found
