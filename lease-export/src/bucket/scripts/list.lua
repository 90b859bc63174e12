-- The buckets within a range, and how many keys each has: none, where it cannot be read.
-- KEYS: index, state, what buckets' names begin with. ARGV: first, last.
local found = redis.call('ZRANGEBYSCORE', KEYS[1], ARGV[1], ARGV[2])
for place = 1, #found do
    local count = redis.pcall('HLEN', KEYS[3] .. found[place])
    found[place] = { tonumber(found[place]), type(count) == 'number' and count or 0 }
end
return found
