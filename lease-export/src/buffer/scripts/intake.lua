-- Opens or stops the intake. KEYS: anything, state.
-- ARGV: open, emergency or stopped, and how it is before anybody said so. Answers how it was.
local before = redis.call('HGET', KEYS[2], 'intake') or ARGV[2]
-- A stop for lack of room leaves one that is stopped as it is.
if ARGV[1] ~= 'emergency' or before == 'open' then
    redis.call('HDEL', KEYS[2], 'intake')
    redis.call('HSET', KEYS[2], 'intake', ARGV[1])
end
return before
