-- Reads a record. KEYS: holder, counter, attributes.
local held = redis.call('HMGET', KEYS[1], 'nonce', 'lessee', 'token')
local holder = held[1] and { 'held', held[2], held[3], redis.call('PTTL', KEYS[1]), held[1] } or { 'free' }
return { holder, redis.call('HGET', KEYS[2], 'token'), redis.call('HGETALL', KEYS[3]) }
