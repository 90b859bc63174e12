-- Refuses the heartbeats of a grant from now on, and lets it run out.
-- KEYS: holder. ARGV: token.
if redis.call('HGET', KEYS[1], 'token') ~= ARGV[1] then
    return 0
end
redis.call('HSET', KEYS[1], 'evicted', 1)
return 1
