-- Frees a key for one lessee alone; for anybody once the reservation has passed.
-- KEYS: holder, counter. ARGV: nonce, token, lessee, reservation (ms), retention (ms), the command
-- that publishes, the channel.
local held = redis.call('HMGET', KEYS[1], 'nonce', 'token')
if held[1] ~= ARGV[1] or held[2] ~= ARGV[2] then
    return why_lost(KEYS[2], ARGV[1], tonumber(ARGV[2]), held[1])
end
vacate(KEYS[1], KEYS[2], ARGV[1], ARGV[5])
reserve(KEYS[2], tonumber(ARGV[4]), ARGV[3], tonumber(ARGV[5]))
tell(ARGV[6], ARGV[7])
return 'applied'
