-- Opens an intake that was stopped for lack of room. KEYS: any, state. Returns 1 or 0.
if redis.call('HGET', KEYS[2], 'intake') ~= 'emergency' then
    return 0
end
-- HDEL first: a full server refuses a first write that may need memory.
redis.call('HDEL', KEYS[2], 'intake')
redis.call('HSET', KEYS[2], 'intake', 'open')
return 1
