-- Gives a grant back to a node that lost it, while a quorum of others still has it.
-- KEYS: holder, counter. ARGV: nonce, lessee, token, beat, ttl (ms), retention (ms); the seconds
-- that the node must have been up.
--
-- Not where a later grant was counted, nor where this one was released: a late request would
-- take the key again, for nobody. And not on a node that has just restarted: it may have voted for
-- somebody before, who is still counting, and would be counted for twice.
local _, uptime = server()
if is_too_young(uptime, ARGV[7]) then
    return 0
end
if redis.call('EXISTS', KEYS[1]) == 1
    or is_followed(KEYS[2], ARGV[1], tonumber(ARGV[3]))
    or redis.call('HGET', KEYS[2], 'last') == ARGV[1] then
    return 0
end
redis.call('HSET', KEYS[1], 'nonce', ARGV[1], 'lessee', ARGV[2], 'token', ARGV[3], 'beat', ARGV[4])
redis.call('HSET', KEYS[1], 'ask', beyond_all_rounds)
redis.call('PEXPIRE', KEYS[1], ARGV[5])
redis.call('HSET', KEYS[2], 'granted', ARGV[1], 'lessee', ARGV[2], 'under', ARGV[3])
raise_counter(KEYS[2], tonumber(ARGV[3]))
keep(KEYS[2], ARGV[6] + ARGV[5])
return 1
