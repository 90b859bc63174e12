-- Changes attributes under the current grant, if they have the expected values.
-- KEYS: lease, attributes. ARGV: nonce, token, 1 if the record is listed already; three counts: of
-- attributes to set, of expected values, and of attributes expected to be absent; then the lists:
-- names and values of the attributes to set, names and values of the expected values,
-- names of the attributes expected to be absent, names of the attributes to remove.
local lease, attributes = KEYS[1], KEYS[2]
local nonce, token = standing(lease)
if nonce ~= ARGV[1] or token ~= ARGV[2] then
    return why_lost(lease, ARGV[1], tonumber(ARGV[2]))
end
local first_expected = 7 + 2 * ARGV[4]
local first_absent = first_expected + 2 * ARGV[5]
local first_removed = first_absent + ARGV[6]
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
if ARGV[3] == '0' and redis.call('HEXISTS', attributes, '.') == 0 then
    return 'unlisted'
end
redis.call('HSET', attributes, '.', 1)
for place = 7, first_expected - 1, 2 do
    redis.call('HSET', attributes, '=' .. ARGV[place], ARGV[place + 1])
end
for place = first_removed, #ARGV do
    redis.call('HDEL', attributes, '=' .. ARGV[place])
end
return 'applied'
