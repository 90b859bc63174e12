-- Opens an intake that was stopped for lack of room. KEYS: anything, state. Answers 1 or 0.
if redis.call('HGET', KEYS[2], 'intake') ~= 'emergency' then
    return 0
end
-- First, since a full server lets nothing else be first.
redis.call('HDEL', KEYS[2], 'intake')
redis.call('HSET', KEYS[2], 'intake', 'open')
return 1
