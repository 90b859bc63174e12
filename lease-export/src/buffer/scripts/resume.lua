-- Opens an intake that was stopped for lack of room. KEYS: any, state.
-- Returns 1 if the intake was opened, or 0.
if redis.call('HGET', KEYS[2], 'intake') ~= 'emergency' then
    return 0
end
-- HDEL comes first: a full server refuses a script whose first write may need memory.
redis.call('HDEL', KEYS[2], 'intake')
redis.call('HSET', KEYS[2], 'intake', 'open')
return 1
