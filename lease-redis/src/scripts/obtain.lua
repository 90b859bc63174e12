-- Grants a free key. On one logical server, a key without a record becomes a lock. The claim may set
-- attributes: ARGV[7] is the entry of the index, followed by names and values in turn.
local lease, attributes, tokens, index = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local nonce, request, lessee, ttl, retention = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local waits = ARGV[6] == '1'

local text = tokens and lock_at(lease)
if text then
    if string.sub(text, 1, 33) == nonce .. 'h' then
        -- The claim was granted before, and the reply was lost. No client has used the older token.
        return { 'again', take_token(tokens), {}, (parts_of(text)) }
    end
    if waits then
        add_mark(lease, text, 'w')
    end
    return report_lock(lease, text)
end

local past = redis.call('HMGET', lease, 'granted', 'ends', 'token', 'last', 'lessee', 'until', 'only',
    'kept', 'request', 'lasts')
if (tonumber(past[2]) or 0) > now() then
    if past[1] == nonce then
        -- Does not extend the lease, because the client may have received the first reply.
        return { 'again', past[3], attributes_at(attributes), past[9] or '0' }
    end
    if waits then
        redis.pcall('HSET', lease, 'waits', 1)
    end
    return report_holder(lease)
end
if past[1] == nonce or past[4] == nonce then
    -- A late duplicate of a claim whose grant has expired or was released. Another lessee may have had the last
    -- grant, but the refusal names the lessee of this claim: its locker then makes a new claim.
    return { 'held', lessee, past[3] or '0', 0, '' }
end
if past[6] then
    local left = past[6] - now()
    if left > 0 and past[7] ~= lessee then
        local reserved_for = past[7] ~= '' and past[7] or past[5] or lessee
        return { 'held', reserved_for, past[3] or '0', math.ceil(left / 1000), '' }
    end
end
-- A key that was claimed under a session stays a record, because a lock would forget its token.
if tokens and not ARGV[7] and not past[10] and redis.call('EXISTS', attributes) == 0 then
    -- A hash without a record belongs to an earlier grant, whose token remains the lower bound.
    if past[3] then
        redis.call('DEL', lease)
    end
    local token = take_token(tokens, past[3])
    write_lock(lease, string.format('%sh-%s 0 %.0f %s', nonce, request, token, lessee), ttl)
    return { 'granted', token, {}, request }
end
if ARGV[7] and is_unlisted(attributes, index, ARGV[7]) then
    return 'unlisted'
end
if past[6] then
    redis.call('HDEL', lease, 'until', 'only')
end
local token = next_token(tokens, past[3])
if ARGV[7] then
    set_attributes(attributes, index, ARGV[7], 8)
end
-- A last grant without `ends` was released.
local last = not past[2] and past[1] or past[4] or ''
redis.call('HSET', lease, 'granted', nonce, 'request', request, 'ends', now() + ttl * 1000, 'token', token,
    'lessee', lessee, 'sequence', 0, 'last', last)
keep_grant(lease, attributes, tokens, past[8], retention + ttl)
return { 'granted', token, attributes_at(attributes), request }
