-- Marks a grant as evicted, so that its heartbeats are refused. `named` is its nonce or its token. Returns 2
-- for a child, whose holder sends no heartbeats.
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
