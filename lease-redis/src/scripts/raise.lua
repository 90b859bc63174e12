-- Writes the token of a quorum's grant back to a node whose counter is smaller. Returns 1 if the node
-- has the token. KEYS: lease. ARGV: nonce, token, retention (ms).
--
-- Only while the grant is current. A later grant on this node has read the smaller counter, and this
-- write would look as if it had read the larger one. A node with a larger counter has granted larger
-- tokens, so it does not count for this token.
local lease = KEYS[1]
if standing(lease) ~= ARGV[1] then
    return 0
end
redis.call('HSET', lease, 'under', ARGV[2])
if tonumber(redis.call('HGET', lease, 'counted')) > tonumber(ARGV[2]) then
    return 0
end
redis.call('HSET', lease, 'counted', ARGV[2])
raise_counter(lease, tonumber(ARGV[2]))
keep(lease, redis.call('HGET', lease, 'kept'), tonumber(ARGV[3]))
return 1
