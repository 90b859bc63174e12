-- Changes attributes under a grant that stands.
-- KEYS: holder, counter, attributes. ARGV: nonce, token, 1 if the record is listed already, how
-- many are set; names and values in turn; the names that are removed.
local held = redis.call('HMGET', KEYS[1], 'nonce', 'token')
if held[1] ~= ARGV[1] or held[2] ~= ARGV[2] then
    return why_lost(KEYS[2], ARGV[1], tonumber(ARGV[2]), held[1])
end
if ARGV[3] == '0' and redis.call('HEXISTS', KEYS[3], '.') == 0 then
    return 'unlisted'
end
redis.call('HSET', KEYS[3], '.', 1)
local first_removed = 5 + 2 * ARGV[4]
for place = 5, first_removed - 1, 2 do
    redis.call('HSET', KEYS[3], '=' .. ARGV[place], ARGV[place + 1])
end
for place = first_removed, #ARGV do
    redis.call('HDEL', KEYS[3], '=' .. ARGV[place])
end
return 'applied'
