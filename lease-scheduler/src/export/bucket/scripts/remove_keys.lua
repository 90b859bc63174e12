-- Removes exactly the named keys of a bucket under a token that was not overtaken.
-- KEYS: index, state, what buckets' names begin with. ARGV: token, bucket, keys.
-- Answers how many were there, or the largest token.
local largest = overtaken(KEYS[2], ARGV[1])
if largest then
    return largest
end
local removed = 0
for place = 3, #ARGV do
    removed = removed + redis.call('HDEL', KEYS[3] .. ARGV[2], ARGV[place])
end
return removed
