-- Marks a grant as evicted. Then its heartbeats are refused, and the grant expires.
-- KEYS: lease. ARGV: the nonce of the grant, or its token.
-- Returns 1 if the grant is evicted, 0 if it is not the current one, or 2 if it is that of a child, whose holder
-- sends no heartbeats.
local lease, named = KEYS[1], ARGV[1]
local text = lock_at(lease)
if text then
    local _, _, token = parts_of(text)
    if string.sub(text, 33, 33) == 'r' or (string.sub(text, 1, 32) ~= named and token ~= named) then
        return 0
    end
    redis.call('SETRANGE', lease, 32, 'x')
    return 1
end
local nonce, token = standing(lease)
if not nonce or (nonce ~= named and token ~= named) then
    return 0
end
if redis.call('HEXISTS', lease, 'parent') == 1 then
    return 2
end
redis.call('HSET', lease, 'evicted', nonce)
return 1
