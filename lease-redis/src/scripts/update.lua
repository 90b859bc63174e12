-- Changes attributes under the current grant, if the record has the expected values.
-- ARGV: nonce, number of the request, token, 1 on one logical server, retention, 1 if the index already has
-- the record; the counts of attributes to set, of expected values, and of attributes expected to be absent;
-- then these lists, with names and values in turn, and the names of the attributes to remove.
local lease, attributes = KEYS[1], KEYS[2]
local has_locks = ARGV[4] == '1'
local text = has_locks and lock_at(lease)
if text then
    if not holds_lock(text, ARGV[1], ARGV[2], ARGV[3]) then
        return why_lock_lost(text, ARGV[1])
    end
else
    local nonce, token = standing(lease)
    if nonce ~= ARGV[1] or token ~= ARGV[3] then
        return why_lost(lease, ARGV[1], ARGV[3])
    end
end
local first_expected = 10 + 2 * ARGV[7]
local first_absent = first_expected + 2 * ARGV[8]
local first_removed = first_absent + ARGV[9]
for place = first_expected, first_absent - 1, 2 do
    if redis.call('HGET', attributes, '=' .. ARGV[place]) ~= ARGV[place + 1] then
        return 'unexpected'
    end
end
for place = first_absent, first_removed - 1 do
    if redis.call('HEXISTS', attributes, '=' .. ARGV[place]) == 1 then
        return 'unexpected'
    end
end
if ARGV[6] == '0' and redis.call('HEXISTS', attributes, '.') == 0 then
    return 'unlisted'
end
if text then
    record_of_lock(lease, text, ARGV[3], tonumber(ARGV[5]))
end
if has_locks then
    keep_for_ever(lease, redis.call('HGET', lease, 'kept'))
end
redis.call('HSET', attributes, '.', 1)
for place = 10, first_expected - 1, 2 do
    redis.call('HSET', attributes, '=' .. ARGV[place], ARGV[place + 1])
end
for place = first_removed, #ARGV do
    redis.call('HDEL', attributes, '=' .. ARGV[place])
end
return 'applied'
