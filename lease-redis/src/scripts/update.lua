-- Changes attributes under a grant that stands, if they are as expected.
-- KEYS: holder, counter, attributes. ARGV: nonce, token, 1 if the record is listed already, how
-- many are set, how many have to have a value, how many have to be absent; names and values in
-- turn, of those that are set and of those that have to have one; the names of those that have to
-- be absent, and of those that are removed.
local held = redis.call('HMGET', KEYS[1], 'nonce', 'token')
if held[1] ~= ARGV[1] or held[2] ~= ARGV[2] then
    return why_lost(KEYS[2], ARGV[1], tonumber(ARGV[2]), held[1])
end
local first_expected = 7 + 2 * ARGV[4]
local first_absent = first_expected + 2 * ARGV[5]
local first_removed = first_absent + ARGV[6]
for place = first_expected, first_absent - 1, 2 do
    if redis.call('HGET', KEYS[3], '=' .. ARGV[place]) ~= ARGV[place + 1] then
        return 'unexpected'
    end
end
for place = first_absent, first_removed - 1 do
    if redis.call('HEXISTS', KEYS[3], '=' .. ARGV[place]) == 1 then
        return 'unexpected'
    end
end
if ARGV[3] == '0' and redis.call('HEXISTS', KEYS[3], '.') == 0 then
    return 'unlisted'
end
redis.call('HSET', KEYS[3], '.', 1)
for place = 7, first_expected - 1, 2 do
    redis.call('HSET', KEYS[3], '=' .. ARGV[place], ARGV[place + 1])
end
for place = first_removed, #ARGV do
    redis.call('HDEL', KEYS[3], '=' .. ARGV[place])
end
return 'applied'
