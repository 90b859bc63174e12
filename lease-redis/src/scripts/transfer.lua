-- Frees a key for one lessee alone; for anybody once the reservation has passed.
-- KEYS: holder, counter. ARGV: nonce, token, lessee, reservation (ms), retention (ms), the command
-- that publishes, the channel.
local holds_now = redis.call('HGET', KEYS[1], 'nonce')
if holds_now ~= ARGV[1] then
    return why_lost(KEYS[2], ARGV[1], tonumber(ARGV[2]), holds_now)
end
vacate(KEYS[1], KEYS[2], ARGV[1], ARGV[5])
reserve(KEYS[2], tonumber(ARGV[4]), ARGV[3], tonumber(ARGV[5]))
tell(ARGV[6], ARGV[7])
return 'applied'
