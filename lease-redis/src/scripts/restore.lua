-- Restores a grant on a node that has forgotten it, while other nodes still have it.
-- KEYS: lease. ARGV: nonce, lessee, token, sequence, ttl (ms), retention (ms).
--
-- Refused if this node has counted a later grant, or if the grant was released. Otherwise a late request
-- would occupy a key that no lessee holds. The client sends no such request to a node that has just
-- restarted: the node's vote from before the restart may still count for another claim.
local lease = KEYS[1]
if standing(lease)
    or is_followed(lease, ARGV[1], tonumber(ARGV[3]))
    or is_given_up(lease, ARGV[1]) then
    return 0
end
redis.call('HSET', lease, 'granted', ARGV[1], 'lessee', ARGV[2], 'ends', now() + ARGV[5] * 1000,
    'sequence', ARGV[4], 'counted', ARGV[3], 'under', ARGV[3], 'round', beyond_all_rounds)
raise_counter(lease, tonumber(ARGV[3]))
keep(lease, redis.call('HGET', lease, 'kept'), ARGV[6] + ARGV[5])
return 1
