-- Gives a grant back to a node that lost it, while a quorum of others still has it.
-- KEYS: lease. ARGV: nonce, lessee, token, beat, ttl (ms), retention (ms); the seconds that the node
-- must have been up.
--
-- Not where a later grant was counted, nor where this one was released: a late request would
-- take the key again, for nobody. And not on a node that has just restarted: it may have voted for
-- somebody before, who is still counting, and would be counted for twice.
local lease = KEYS[1]
local _, uptime = server()
if is_too_young(uptime, ARGV[7]) then
    return 0
end
if standing(lease)
    or is_followed(lease, ARGV[1], tonumber(ARGV[3]))
    or is_given_up(lease, ARGV[1]) then
    return 0
end
redis.call('HSET', lease, 'granted', ARGV[1], 'lessee', ARGV[2], 'ends', now() + ARGV[5] * 1000,
    'beat', ARGV[4], 'counted', ARGV[3], 'under', ARGV[3], 'ask', beyond_all_rounds)
raise_counter(lease, tonumber(ARGV[3]))
keep(lease, redis.call('HGET', lease, 'kept'), ARGV[6] + ARGV[5])
return 1
