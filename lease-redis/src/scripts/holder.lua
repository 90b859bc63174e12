-- Tells who holds a key. KEYS: holder.
local held = redis.call('HMGET', KEYS[1], 'nonce', 'lessee', 'token')
if not held[1] then
    return { 'free' }
end
return { 'held', held[2], held[3], redis.call('PTTL', KEYS[1]), held[1] }
