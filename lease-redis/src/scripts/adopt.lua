-- Makes a claim the holder of a grant that was handed over.
-- KEYS: lease, attributes (not in a Cluster). ARGV: the grant's nonce; the claim's nonce, lessee and ttl (ms);
-- retention (ms); on a node of a quorum the number of the round, or 0; the grant's token.
-- With attributes to set: KEYS: lease, attributes, index (not in a Cluster). ARGV: as above; the entry of
-- the index; names and values in turn.
local lease, attributes, index = KEYS[1], KEYS[2], KEYS[3]
local handed, nonce, lessee, ttl, retention = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local round = tonumber(ARGV[6])

local held = redis.call('HMGET', lease, 'granted', 'ends', 'token', 'evicted', 'round', 'lessee', 'counted',
    'run', 'kept')
local stands = (tonumber(held[2]) or 0) > now()
if stands and held[1] == nonce then
    -- The claim is repeated in a later round, so withdrawals of earlier rounds no longer apply.
    if round > (tonumber(held[5]) or 0) then
        redis.call('HSET', lease, 'round', round)
    end
    return { 'again', held[7] or held[3], attributes_at(attributes) }
end
-- On one server, another token means another grant. The nodes of a quorum may count differently.
if not stands or held[1] ~= handed or held[4] == handed or (round == 0 and held[3] ~= ARGV[7]) then
    return report_holder(lease)
end
if ARGV[8] and is_unlisted(attributes, index, ARGV[8]) then
    return 'unlisted'
end

-- HDEL comes first: a server at its maxmemory refuses HSET unless the script has written before. The
-- lease is held already, so it must be kept.
redis.call('HDEL', lease, 'until', 'only')
local run
if round > 0 then
    run = server()
end
local token = next_token(held[3], held[8], run)
if round > 0 then
    -- A withdrawal of this vote restores the nonce and token of the grant that was handed over.
    redis.call('HSET', lease, 'run', run, 'round', round, 'counted', token, 'under', token,
        'before', handed, 'before_lessee', held[6], 'before_under', ARGV[7])
end
if ARGV[8] then
    set_attributes(attributes, index, ARGV[8], 9)
end
redis.call('HSET', lease, 'granted', nonce, 'ends', now() + ttl * 1000, 'token', token, 'lessee', lessee,
    'sequence', 0, 'last', handed)
keep(lease, held[9], retention + ttl)
return { 'granted', token, attributes_at(attributes) }
