-- Adds one to an attribute, and returns its new value. Creates the record if it does not exist. ARGV[2]: 1 if
-- the record is listed already.
local lease, attributes, index = KEYS[1], KEYS[2], KEYS[3]
local name, entry = '=' .. ARGV[1], ARGV[3]
-- Only the holder can make a record of its lock, because no script knows the token.
if index and lock_at(lease) then
    return 'held'
end
local before = redis.call('HGET', attributes, name)
local number = not before and 0 or tonumber(string.match(before, '^{"N":"(%-?%d+)"}$'))
-- Larger numbers are inexact.
if not number or math.abs(number) >= 9007199254740991 then
    return 'text'
end
if ARGV[2] == '0' and is_unlisted(attributes, index, '') then
    return 'unlisted'
end
if redis.call('HSET', attributes, '.', 1) == 1 and index then
    redis.call('ZADD', index, 0, entry)
    keep_for_ever(lease, redis.call('HGET', lease, 'kept'))
end
redis.call('HSET', attributes, name, string.format('{"N":"%.0f"}', number + 1))
return string.format('%.0f', number + 1)
