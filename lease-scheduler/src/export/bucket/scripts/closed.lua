-- The oldest buckets after the marker that are closed. KEYS: index, state.
-- ARGV: how old a closed bucket's beginning is, how many are asked for.
local marker = redis.call('HGET', KEYS[2], 'marker')
local from = marker and '(' .. marker or '-inf'
local last = redis.call('TIME')[1] - ARGV[1]
local found = redis.call('ZRANGEBYSCORE', KEYS[1], from, last, 'LIMIT', 0, ARGV[2])
for place = 1, #found do
    found[place] = tonumber(found[place])
end
return found
