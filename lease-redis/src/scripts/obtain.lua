-- Grants a free key.
-- KEYS: lease, attributes (not in a Cluster). ARGV: nonce, lessee, ttl (ms), retention (ms), 0. On a node
-- of a quorum, instead of that 0: the number of the round, and the time that is proposed to all nodes, or 0.
-- With attributes to set: KEYS: lease, attributes, index (not in a Cluster). ARGV: as above, 0, 0; the
-- entry of the index; names and values in turn.
local lease, attributes, index = KEYS[1], KEYS[2], KEYS[3]
local nonce, lessee, ttl, retention, round = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])

local past = redis.call('HMGET', lease, 'granted', 'ends', 'token', 'last', 'lessee', 'until', 'only',
    'kept')
if (tonumber(past[2]) or 0) > now() then
    if past[1] ~= nonce then
        return report_holder(lease)
    end
    -- Granted before, and the reply was lost. Not extended: the client may have received the first reply.
    -- The claim is repeated in a later round, so withdrawals of earlier rounds no longer apply.
    local held = redis.call('HMGET', lease, 'round', 'counted')
    if round > (tonumber(held[1]) or 0) then
        redis.call('HSET', lease, 'round', round)
    end
    return { 'again', held[2] or past[3], attributes_at(attributes) }
end
if past[1] == nonce or past[4] == nonce then
    -- A late duplicate of a claim whose grant has expired or was released.
    return { 'held', past[5] or lessee, past[3] or '0', 0, nonce }
end
if past[6] then
    local left = past[6] - now()
    if left > 0 and past[7] ~= lessee then
        local reserved_for = past[7] ~= '' and past[7] or past[5] or lessee
        return { 'held', reserved_for, past[3] or '0', math.ceil(left / 1000), '' }
    end
end
if ARGV[7] and is_unlisted(attributes, index, ARGV[7]) then
    return 'unlisted'
end
if past[6] then
    redis.call('HDEL', lease, 'until', 'only')
end

local token
if round == 0 then
    token = next_token(past[3])
else
    local run, uptime = server()
    local given = redis.call('HMGET', lease, 'run', 'under')
    token = next_token(past[3], given[1], run, common_time(tonumber(ARGV[6]), uptime))
    redis.call('HSET', lease, 'run', run, 'round', round, 'counted', token, 'under', token,
        'before', past[1] or '', 'before_lessee', past[5] or '', 'before_under', given[2] or past[3] or '')
end
if ARGV[7] then
    set_attributes(attributes, index, ARGV[7], 8)
end
-- A last grant without `ends` was released. On a node of a quorum, the release itself sets `last`, even
-- if the node had not voted for the grant.
local last = round == 0 and not past[2] and past[1] or past[4] or ''
redis.call('HSET', lease, 'granted', nonce, 'ends', now() + ttl * 1000, 'token', token, 'lessee', lessee,
    'sequence', 0, 'last', last)
keep(lease, past[8], retention + ttl)
return { 'granted', token, attributes_at(attributes), round ~= 0 and now() or nil }
