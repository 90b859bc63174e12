-- Reads a record. KEYS: lease, attributes.
local text = lock_at(KEYS[1])
if text then
    return { holder_at(KEYS[1]), false, {} }
end
return { report_holder(KEYS[1]), redis.call('HGET', KEYS[1], 'token'), redis.call('HGETALL', KEYS[2]) }
