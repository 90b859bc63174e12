-- Reserves a key for one lessee. After the reservation, any lessee can obtain it.
-- ARGV: nonce, number of the request, token, 1 on one logical server, lessee, reservation, retention,
-- publish, channel.
local lease = KEYS[1]
local text = ARGV[4] == '1' and lock_at(lease)
if text then
    if not holds_lock(text, ARGV[1], ARGV[2], ARGV[3]) then
        return why_lock_lost(text, ARGV[1])
    end
    record_of_lock(lease, text, ARGV[3], tonumber(ARGV[7]))
end
local nonce, token = standing(lease)
if nonce ~= ARGV[1] or token ~= ARGV[3] then
    -- The server may have applied this request before, and its reply was lost.
    local past = redis.call('HMGET', lease, 'last', 'until', 'only')
    if not nonce and past[1] == ARGV[1] and past[2] and past[3] == ARGV[5] then
        return 'applied'
    end
    return why_lost(lease, ARGV[1], ARGV[3])
end
vacate(lease, nonce)
reserve(lease, tonumber(ARGV[6]), ARGV[5], tonumber(ARGV[7]))
notify(lease, ARGV[8], ARGV[9])
return 'applied'
