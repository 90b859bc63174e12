-- Refuses the heartbeats of a grant from now on, and lets the grant expire.
-- KEYS: lease. ARGV: token.
local nonce, token = standing(KEYS[1])
if token ~= ARGV[1] then
    return 0
end
redis.call('HSET', KEYS[1], 'evicted', nonce)
return 1
