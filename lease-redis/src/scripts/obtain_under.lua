-- Grants a key that is still as the claim has seen it: free, or held under a session that has ended.
--
-- `seen` is the token that the claim has seen, `former` is the session that has ended, and `parent` is the
-- claim's session. All three may be empty. Only with attributes to set, `entry` is present, and names and
-- values follow in turn.
--
-- A refusal is final, for the retention, because the record never again is what the claim has seen.
-- Otherwise, a late copy of a refused claim could be granted, and no ttl would free the key.
local lease, attributes, tokens, index = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local nonce, request, lessee, ttl, retention = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local waits, seen, former, former_token = ARGV[6] == '1', ARGV[7], ARGV[8], ARGV[9]
local parent, parent_token, entry = ARGV[10], ARGV[11], ARGV[12]

local text = tokens and lock_at(lease)
if text then
    -- Nothing remains of the lock, so the token is written beside it.
    redis.call('SET', lease .. ':refused', take_token(tokens), 'PX', retention + redis.call('PTTL', lease))
    if waits then
        add_mark(lease, text, 'w')
    end
    return report_lock(lease, text)
end

local past = redis.call('HMGET', lease, 'granted', 'ends', 'token', 'last', 'lessee', 'parent', 'parent_token',
    'until', 'only', 'kept', 'request')
local holds = (tonumber(past[2]) or 0) > now()
if holds and past[1] == nonce then
    return { 'again', past[3], attributes_at(attributes), past[11] or '0' }
end
local reserved = past[8] and math.max(past[8] - now(), 0) or 0
local token = last_token(lease, tokens, past[3])
local is_as_seen = token == seen
if former ~= '' then
    is_as_seen = is_as_seen and past[6] == former and past[7] == former_token
else
    is_as_seen = is_as_seen and not past[2] and (reserved == 0 or past[9] == lessee)
end
if not is_as_seen then
    if past[3] then
        redis.call('HSET', lease, 'lasts', retention)
        keep(lease, past[10], retention)
    end
    if not holds then
        return { 'held', past[5] or lessee, token == '' and '0' or token, math.ceil(reserved / 1000), '' }
    end
    if waits then
        redis.pcall('HSET', lease, 'waits', 1)
    end
    return report_holder(lease)
end
if entry and is_unlisted(attributes, index, entry) then
    return 'unlisted'
end
if tokens and redis.pcall('EXISTS', lease .. ':queue') == 1 then
    dissolve_queue(lease)
end
if past[8] then
    redis.call('HDEL', lease, 'until', 'only')
end
remove_end(lease)
local granted = next_token(tokens, past[3])
if entry then
    set_attributes(attributes, index, entry, 13)
end
redis.call('HSET', lease, 'granted', nonce, 'request', request, 'ends', now() + ttl * 1000, 'token', granted,
    'lessee', lessee, 'sequence', 0, 'last', past[1] or past[4] or '', 'lasts', retention)
local kept = redis.call('HGET', lease, 'kept')
if parent ~= '' then
    put_under(lease, parent, parent_token, kept, retention)
else
    keep_grant(lease, attributes, tokens, kept, retention + ttl)
end
return { 'granted', granted, attributes_at(attributes), request }
