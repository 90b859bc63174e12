-- Makes a claim the holder of a grant that was handed over.
-- KEYS: holder, counter, attributes. ARGV: the grant's nonce; the claim's nonce, lessee and ttl
-- (ms); retention (ms).
local holder, counter, attributes = KEYS[1], KEYS[2], KEYS[3]
local handed, nonce, lessee, ttl, retention = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

local held = redis.call('HMGET', holder, 'nonce', 'token', 'evicted')
if held[1] == nonce then
    return { 'again', held[2], redis.call('HGETALL', attributes) }
end
if held[1] ~= handed or held[3] then
    return told_of(holder)
end

local past = redis.call('HMGET', counter, 'token', 'run')
local run = server()
local token = digits(next_token(past[1], past[2], run))
redis.call('HSET', counter, 'token', token, 'run', run, 'granted', nonce, 'lessee', lessee, 'last', handed)
redis.call('HDEL', counter, 'until', 'only')
redis.call('PEXPIRE', counter, retention)
redis.call('HSET', holder, 'nonce', nonce, 'lessee', lessee, 'token', token, 'beat', 0)
redis.call('HDEL', holder, 'shown')
redis.call('PEXPIRE', holder, ttl)
return { 'granted', token, redis.call('HGETALL', attributes) }
