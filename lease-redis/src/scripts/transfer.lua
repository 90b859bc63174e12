-- Frees a key for one lessee alone; for anybody once the reservation has passed.
-- KEYS: holder, counter. ARGV: nonce, token, lessee, reservation (ms), retention (ms), the command
-- that publishes, the channel.
local held = redis.call('HMGET', KEYS[1], 'nonce', 'token')
if held[1] ~= ARGV[1] or held[2] ~= ARGV[2] then
    -- Applied before, and the reply was lost?
    local past = redis.call('HMGET', KEYS[2], 'last', 'until', 'only')
    if not held[1] and past[1] == ARGV[1] and past[2] and past[3] == ARGV[3] then
        return 'applied'
    end
    return why_lost(KEYS[2], ARGV[1], tonumber(ARGV[2]), held[1])
end
vacate(KEYS[1], KEYS[2], ARGV[1], ARGV[5])
reserve(KEYS[2], tonumber(ARGV[4]), ARGV[3], tonumber(ARGV[5]))
tell(ARGV[6], ARGV[7])
return 'applied'
