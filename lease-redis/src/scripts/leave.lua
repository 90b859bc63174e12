-- Removes a claim from the queue of a key. If the claim holds the key, grants the key to the next waiter, and
-- returns 1. KEYS: lease, queue, waiters, tokens. ARGV: nonce, channel.
local lease, tokens = KEYS[1], KEYS[4]
local nonce = ARGV[1]
leave_queue(lease, nonce)
local text = lock_at(lease)
if text then
    if string.sub(text, 1, 32) ~= nonce or string.sub(text, 33, 33) == 'r' then
        return 0
    end
    end_lock(lease, text, tokens, 'PUBLISH', ARGV[2])
    return 1
end
if redis.call('EXISTS', lease) == 0 then
    grants_next(lease, tokens, 'q')
    return 0
end
-- An earlier claim of this nonce may hold a record.
if redis.call('HGET', lease, 'granted') ~= nonce or not remove_end(lease) then
    return 0
end
notify(lease, 'PUBLISH', ARGV[2])
return 1
