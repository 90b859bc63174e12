-- Writes the token of a quorum's grant back to a node that counted differently.
-- KEYS: holder, counter. ARGV: nonce, token, retention (ms).
--
-- Only while the key is the grant's: a grant that came after it on this node has read the counter
-- as it was, and writing now would look as if it had read the larger one.
if redis.call('HGET', KEYS[1], 'nonce') ~= ARGV[1] then
    return 0
end
redis.call('HSET', KEYS[1], 'token', ARGV[2])
raise_counter(KEYS[2], tonumber(ARGV[2]), ARGV[3])
return 1
