-- Makes a claim the holder of a grant that was handed over.
-- KEYS: lease, attributes (not in a Cluster). ARGV: the grant's nonce; the claim's nonce, lessee and ttl (ms);
-- retention (ms); on a node of a quorum the number of the round, or 0; the grant's token.
local lease, attributes = KEYS[1], KEYS[2]
local handed, nonce, lessee, ttl, retention = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local ask = tonumber(ARGV[6])

local held = redis.call('HMGET', lease, 'granted', 'ends', 'token', 'evicted', 'ask', 'lessee', 'counted',
    'run', 'kept')
local stands = (tonumber(held[2]) or 0) > now()
if stands and held[1] == nonce then
    -- Asked for again, so what takes earlier rounds back comes too late.
    if ask > (tonumber(held[5]) or 0) then
        redis.call('HSET', lease, 'ask', ask)
    end
    return { 'again', held[7] or held[3], attributes_at(attributes) }
end
-- The nodes of a quorum may count differently; on one server, another token is another grant.
if not stands or held[1] ~= handed or held[4] == handed or (ask == 0 and held[3] ~= ARGV[7]) then
    return told_of(lease)
end

-- What needs no memory comes first: a server without any refuses the rest, unless the script has
-- written before. The lease is held already, so it is to be kept.
redis.call('HDEL', lease, 'until', 'only')
local run
if ask > 0 then
    run = server()
end
local token = next_token(held[3], held[8], run)
if ask > 0 then
    -- If this vote is taken back, whoever came before the grant is still known to be followed.
    redis.call('HSET', lease, 'run', run, 'ask', ask, 'counted', token, 'under', token,
        'before', handed, 'before_lessee', held[6], 'before_under', ARGV[7])
end
redis.call('HSET', lease, 'granted', nonce, 'ends', now() + ttl * 1000, 'token', token, 'lessee', lessee,
    'beat', 0, 'last', handed)
keep(lease, held[9], retention + ttl)
return { 'granted', token, attributes_at(attributes) }
