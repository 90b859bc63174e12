-- Removes a record under the current grant. The lease remains for the retention, with its token and nonce.
-- KEYS: lease, attributes. ARGV: nonce, number of the request, token, 1 on one logical server, retention (ms),
-- the command that publishes, the channel.
local lease = KEYS[1]
local text = ARGV[4] == '1' and lock_at(lease)
if text then
    if not holds_lock(text, ARGV[1], ARGV[2], ARGV[3]) then
        return why_lock_lost(text, ARGV[1])
    end
    record_of_lock(lease, text, ARGV[3], tonumber(ARGV[5]))
end
local nonce, token = standing(lease)
if nonce ~= ARGV[1] or token ~= ARGV[3] then
    -- The server may have applied this request before, and its reply was lost.
    if redis.call('HGET', lease, 'deleted') == ARGV[1] then
        return 'applied'
    end
    return why_lost(lease, ARGV[1], ARGV[3])
end
vacate(lease, nonce)
redis.call('DEL', KEYS[2])
redis.call('HSET', lease, 'deleted', nonce)
keep(lease, nil, tonumber(ARGV[5]))
notify(lease, ARGV[6], ARGV[7])
return 'applied'
