-- The buckets within a range, and how many keys each has.
-- KEYS: index, state, what buckets' names begin with. ARGV: first, last.
local found = redis.call('ZRANGEBYSCORE', KEYS[1], ARGV[1], ARGV[2])
for place = 1, #found do
    found[place] = { tonumber(found[place]), redis.call('HLEN', KEYS[3] .. found[place]) }
end
return found
