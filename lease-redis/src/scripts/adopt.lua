-- Makes a claim the holder of a grant that was handed over. `parent` is empty if the claim has no session.
-- Only with attributes to set, ARGV[11] is the entry of the index, followed by names and values in turn.
local lease, attributes, tokens, index = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local handed, handed_request, handed_token = ARGV[1], ARGV[2], ARGV[3]
local nonce, request, lessee, ttl, retention = ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8]
local parent, parent_token = ARGV[9], ARGV[10]

local text = tokens and lock_at(lease)
if text then
    if string.sub(text, 1, 33) == nonce .. 'h' then
        return { 'again', take_token(tokens), {}, (parts_of(text)) }
    end
    if not holds_lock(text, handed, handed_request, handed_token) or string.sub(text, 33, 33) ~= 'h' then
        return holder_at(lease)
    end
    if parent == '' and not ARGV[11] then
        -- PEXPIRE counts as a write, so XADD succeeds on a server at its maxmemory.
        redis.call('PEXPIRE', lease, ttl)
        local token = take_token(tokens, handed_token)
        local mark = string.sub(text, 34, 34)
        write_lock(lease, string.format('%sh%s%s 0 %.0f %s', nonce, mark, request, token, lessee), ttl)
        return { 'granted', token, {}, request }
    end
    record_of_lock(lease, text, handed_token, retention)
end

local held = redis.call('HMGET', lease, 'granted', 'ends', 'token', 'evicted', 'request')
local stands = (tonumber(held[2]) or 0) > now()
if stands and held[1] == nonce then
    return { 'again', held[3], attributes_at(attributes), held[5] or '0' }
end
-- Refuses another token, which belongs to another grant.
if not stands or held[1] ~= handed or held[4] == handed or held[3] ~= handed_token then
    return report_holder(lease)
end
if ARGV[11] and is_unlisted(attributes, index, ARGV[11]) then
    return 'unlisted'
end

-- HDEL counts as a write, so HSET succeeds on a server at its maxmemory. The lease is already held, so this
-- script must succeed even there.
redis.call('HDEL', lease, 'until', 'only')
remove_end(lease)
local token = next_token(tokens, held[3])
if ARGV[11] then
    set_attributes(attributes, index, ARGV[11], 12)
end
redis.call('HSET', lease, 'granted', nonce, 'request', request, 'ends', now() + ttl * 1000, 'token', token,
    'lessee', lessee, 'sequence', 0, 'last', handed)
local kept = redis.call('HGET', lease, 'kept')
if parent ~= '' then
    put_under(lease, parent, parent_token, kept, retention)
else
    keep_grant(lease, attributes, tokens, kept, retention + ttl)
end
return { 'granted', token, attributes_at(attributes), request }
