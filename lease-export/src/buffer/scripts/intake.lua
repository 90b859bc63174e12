-- Opens or stops the intake, and returns its previous state. KEYS: any, state.
-- ARGV: `open`, `emergency` or `stopped`; the initial state.
local before = redis.call('HGET', KEYS[2], 'intake') or ARGV[2]
-- A stop for lack of room does not replace an operator's stop.
if ARGV[1] ~= 'emergency' or before == 'open' then
    redis.call('HDEL', KEYS[2], 'intake')
    redis.call('HSET', KEYS[2], 'intake', ARGV[1])
end
return before
