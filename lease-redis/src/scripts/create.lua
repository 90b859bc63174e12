-- Creates a record, unless the key has one or is held. KEYS[2]: attributes. ARGV: `has_locks`; names and
-- values in turn.
local lease = KEYS[1]
local has_locks = ARGV[1] == '1'
if has_locks and lock_at(lease) or standing(lease) or redis.call('HEXISTS', KEYS[2], '.') == 1 then
    return 0
end
redis.call('DEL', KEYS[2])
redis.call('HSET', KEYS[2], '.', 1)
for place = 2, #ARGV, 2 do
    redis.call('HSET', KEYS[2], '=' .. ARGV[place], ARGV[place + 1])
end
if has_locks then
    keep_for_ever(lease)
end
return 1
