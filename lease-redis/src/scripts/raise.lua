-- Writes the token of a quorum's grant back to a node that counted to less, and answers 1 if it
-- is there. KEYS: holder, counter. ARGV: nonce, token, retention (ms).
--
-- Only while the key is the grant's: a grant that came after it on this node has read the counter
-- as it was, and writing now would look as if it had read the larger one. And a node that counted
-- further has seen larger tokens than this one, so it cannot stand for it.
local held = redis.call('HMGET', KEYS[1], 'nonce', 'token')
if held[1] ~= ARGV[1] then
    return 0
end
redis.call('HSET', KEYS[2], 'under', ARGV[2])
if tonumber(held[2]) > tonumber(ARGV[2]) then
    redis.call('HSET', KEYS[1], 'shown', ARGV[2])
    return 0
end
redis.call('HSET', KEYS[1], 'token', ARGV[2])
raise_counter(KEYS[2], tonumber(ARGV[2]))
keep(KEYS[2], tonumber(ARGV[3]))
return 1
