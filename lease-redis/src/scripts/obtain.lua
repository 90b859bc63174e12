-- Grants a free key.
-- KEYS: lease, attributes (not in a Cluster). ARGV: nonce, lessee, ttl (ms), retention (ms), 0; or, instead of that, on a
-- node of a quorum, the number of the round, the seconds that it must have been up to take part, and
-- the time that is proposed to all nodes, or 0.
local lease, attributes = KEYS[1], KEYS[2]
local nonce, lessee, ttl, retention, ask = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])

local past = redis.call('HMGET', lease, 'granted', 'ends', 'token', 'last', 'lessee', 'until', 'only',
    'kept')
if (tonumber(past[2]) or 0) > now() then
    if past[1] ~= nonce then
        return told_of(lease)
    end
    -- Granted before, and the reply was lost. Not extended: nobody knows which reply came. But it
    -- is asked for again, so what takes earlier rounds back comes too late.
    local held = redis.call('HMGET', lease, 'ask', 'counted')
    if ask > (tonumber(held[1]) or 0) then
        redis.call('HSET', lease, 'ask', ask)
    end
    return { 'again', held[2] or past[3], attributes_at(attributes) }
end
if past[1] == nonce or past[4] == nonce then
    -- A late duplicate of a grant that ran out or was released.
    return { 'held', past[5] or lessee, past[3] or '0', 0, nonce }
end
if past[6] then
    local left = past[6] - now()
    if left > 0 and past[7] ~= lessee then
        local reserved_for = past[7] ~= '' and past[7] or past[5] or lessee
        return { 'held', reserved_for, past[3] or '0', math.ceil(left / 1000), '' }
    end
    redis.call('HDEL', lease, 'until', 'only')
end

local token
if ask == 0 then
    token = next_token(past[3])
else
    local run, uptime = server()
    if is_too_young(uptime, ARGV[6]) then
        return { 'restarted', math.max(uptime, 0) }
    end
    local given = redis.call('HMGET', lease, 'run', 'under')
    token = next_token(past[3], given[1], run, common_time(tonumber(ARGV[7]), uptime))
    redis.call('HSET', lease, 'run', run, 'ask', ask, 'counted', token, 'under', token,
        'before', past[1] or '', 'before_lessee', past[5] or '', 'before_under', given[2] or past[3] or '')
end
-- What was granted last and does not end was given up. A node of a quorum has noted that itself: of
-- those that it did not grant, too.
local last = ask == 0 and not past[2] and past[1] or past[4] or ''
redis.call('HSET', lease, 'granted', nonce, 'ends', now() + ttl * 1000, 'token', token, 'lessee', lessee,
    'beat', 0, 'last', last)
keep(lease, past[8], retention + ttl)
return { 'granted', token, attributes_at(attributes), ask ~= 0 and now() or nil }
