-- Removes a record under the current grant. The lease remains, with its token and nonce.
-- KEYS: lease, attributes. ARGV: nonce, token, the command that publishes, the channel.
local lease = KEYS[1]
local nonce, token = standing(lease)
if nonce ~= ARGV[1] or token ~= ARGV[2] then
    -- Applied before, and the reply was lost?
    if redis.call('HGET', lease, 'deleted') == ARGV[1] then
        return 'applied'
    end
    return why_lost(lease, ARGV[1], tonumber(ARGV[2]))
end
vacate(lease, nonce)
redis.call('DEL', KEYS[2])
redis.call('HSET', lease, 'deleted', nonce)
notify(ARGV[3], ARGV[4])
return 'applied'
