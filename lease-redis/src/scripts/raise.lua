-- Writes the token of a quorum's grant back to a node that counted to less, and answers 1 if it
-- is there. KEYS: lease. ARGV: nonce, token, retention (ms).
--
-- Only while the key is the grant's: a grant that came after it on this node has read the counter
-- as it was, and writing now would look as if it had read the larger one. And a node that counted
-- further has seen larger tokens than this one, so it cannot stand for it.
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
