-- Writes the end of the session with this token, if the session is over. Returns 'ended', or the holder of
-- the key.
local lease, tokens = KEYS[1], KEYS[2]
local session, retention, publish, channel = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]

local text = tokens and lock_at(lease)
if text then
    local _, _, token = parts_of(text)
    if tonumber(token) > tonumber(session) then
        return 'ended'
    end
    if string.sub(text, 33, 33) ~= 'r' then
        -- A smaller token may be that of the session, too, because its first heartbeat writes the token.
        return report_lock(lease, text)
    end
    local left = redis.call('PTTL', lease)
    record_of_lock(lease, text, session, retention)
    vacate(lease, string.sub(text, 1, 32))
    reserve(lease, left, '', retention)
    return 'ended'
end

local past = redis.call('HMGET', lease, 'granted', 'ends', 'token', 'kept')
local token = tonumber(last_token(lease, tokens, past[3])) or 0
if token > tonumber(session) then
    return 'ended'
end
if (tonumber(past[2]) or 0) > now() then
    return report_holder(lease)
end
-- The lock of the session has expired. If claims are queued for the key, the first claim gets a larger token.
if tokens and redis.call('EXISTS', lease) == 0 and redis.pcall('EXISTS', lease .. ':queue') == 1
    and settle(lease, tokens, 'q') then
    return 'ended'
end
vacate(lease, past[1] or '')
redis.call('HSET', lease, 'token', session)
keep(lease, past[4], retention)
notify(lease, publish, channel)
return 'ended'
