-- Grants a free key.
-- KEYS: holder, counter, attributes. ARGV: nonce, lessee, ttl (ms), retention (ms); on a node of a
-- quorum the number of the round, or 0; the seconds that a node must have been up to take part.
local holder, counter, attributes = KEYS[1], KEYS[2], KEYS[3]
local nonce, lessee, ttl, retention, ask = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])

local held = redis.call('HMGET', holder, 'nonce', 'token', 'ask')
if held[1] == nonce then
    -- Granted before, and the reply was lost. Not extended: nobody knows which reply came. But it
    -- is asked for again, so what takes earlier rounds back comes too late.
    if ask > (tonumber(held[3]) or 0) then
        redis.call('HSET', holder, 'ask', ask)
    end
    return { 'again', held[2], redis.call('HGETALL', attributes) }
end
if held[1] then
    return told_of(holder)
end

local past = redis.call('HMGET', counter, 'token', 'run', 'granted', 'last', 'lessee', 'until', 'only',
    'under')
if past[3] == nonce or past[4] == nonce then
    -- A late duplicate of a grant that ran out or was released.
    return { 'held', past[5] or lessee, past[1] or '0', 0, nonce }
end
if past[6] then
    local left = past[6] - now() / 1000
    if left > 0 and past[7] ~= lessee then
        local reserved_for = past[7] ~= '' and past[7] or past[5] or lessee
        return { 'held', reserved_for, past[1] or '0', math.ceil(left), '' }
    end
    redis.call('HDEL', counter, 'until', 'only')
end

local run, uptime
if ask > 0 then
    run, uptime = server()
    if is_too_young(uptime, ARGV[6]) then
        return { 'restarted', math.max(uptime, 0) }
    end
    redis.call('HSET', counter, 'run', run, 'before', past[3] or '', 'before_lessee', past[5] or '',
        'before_under', past[8] or past[1] or '')
    redis.call('HSET', holder, 'ask', ask)
end
local token = digits(next_token(past[1], past[2], run))
redis.call('HSET', counter, 'token', token, 'granted', nonce, 'lessee', lessee)
if ask > 0 then
    redis.call('HSET', counter, 'under', token)
end
keep(counter, retention + ttl)
redis.call('HSET', holder, 'nonce', nonce, 'lessee', lessee, 'token', token, 'beat', 0)
redis.call('PEXPIRE', holder, ttl)
return { 'granted', token, redis.call('HGETALL', attributes) }
