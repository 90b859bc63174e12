-- Creates a record, unless the key has one or is held.
-- KEYS: lease, attributes. ARGV: names and values in turn.
if standing(KEYS[1]) or redis.call('HEXISTS', KEYS[2], '.') == 1 then
    return 0
end
redis.call('DEL', KEYS[2])
redis.call('HSET', KEYS[2], '.', 1)
for place = 1, #ARGV, 2 do
    redis.call('HSET', KEYS[2], '=' .. ARGV[place], ARGV[place + 1])
end
return 1
