-- Makes a claim the holder of a grant that was handed over.
-- KEYS: holder, counter, attributes. ARGV: the grant's nonce; the claim's nonce, lessee and ttl
-- (ms); retention (ms); on a node of a quorum the number of the round, or 0; the grant's token.
local holder, counter, attributes = KEYS[1], KEYS[2], KEYS[3]
local handed, nonce, lessee, ttl, retention = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

local ask = tonumber(ARGV[6])

local held = redis.call('HMGET', holder, 'nonce', 'token', 'evicted', 'ask', 'lessee')
if held[1] == nonce then
    -- Asked for again, so what takes earlier rounds back comes too late.
    if ask > (tonumber(held[4]) or 0) then
        redis.call('HSET', holder, 'ask', ask)
    end
    return { 'again', held[2], redis.call('HGETALL', attributes) }
end
-- The nodes of a quorum may count differently; on one server, another token is another grant.
if held[1] ~= handed or held[3] or (ask == 0 and held[2] ~= ARGV[7]) then
    return told_of(holder)
end

local past = redis.call('HMGET', counter, 'token', 'run')
local run
if ask > 0 then
    run = server()
    -- If this vote is taken back, whoever came before the grant is still known to be followed.
    redis.call('HSET', counter, 'run', run, 'before', handed, 'before_lessee', held[5],
        'before_under', ARGV[7])
    redis.call('HSET', holder, 'ask', ask)
end
local token = digits(next_token(past[1], past[2], run))
redis.call('HSET', counter, 'token', token, 'granted', nonce, 'lessee', lessee, 'last', handed)
if ask > 0 then
    redis.call('HSET', counter, 'under', token)
end
redis.call('HDEL', counter, 'until', 'only')
keep(counter, retention + ttl)
redis.call('HSET', holder, 'nonce', nonce, 'lessee', lessee, 'token', token, 'beat', 0)
redis.call('HDEL', holder, 'shown')
redis.call('PEXPIRE', holder, ttl)
return { 'granted', token, redis.call('HGETALL', attributes) }
