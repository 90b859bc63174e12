-- Lists the buckets of a range with their numbers of keys. An unreadable bucket counts 0 keys.
-- KEYS: index, state, prefix of the buckets' keys. ARGV: first, last.
local found = redis.call('ZRANGEBYSCORE', KEYS[1], ARGV[1], ARGV[2])
for place = 1, #found do
    local count = redis.pcall('HLEN', KEYS[3] .. found[place])
    found[place] = { tonumber(found[place]), type(count) == 'number' and count or 0 }
end
return found
