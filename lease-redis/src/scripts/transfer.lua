-- Reserves a key for one lessee. After the reservation, any lessee can obtain it.
-- KEYS: lease. ARGV: nonce, token, lessee, reservation (ms), retention (ms), the command that
-- publishes, the channel.
local lease = KEYS[1]
local nonce, token = standing(lease)
if nonce ~= ARGV[1] or token ~= ARGV[2] then
    -- Applied before, and the reply was lost?
    local past = redis.call('HMGET', lease, 'last', 'until', 'only')
    if not nonce and past[1] == ARGV[1] and past[2] and past[3] == ARGV[3] then
        return 'applied'
    end
    return why_lost(lease, ARGV[1], tonumber(ARGV[2]))
end
vacate(lease, nonce)
reserve(lease, tonumber(ARGV[4]), ARGV[3], tonumber(ARGV[5]))
notify(ARGV[6], ARGV[7])
return 'applied'
