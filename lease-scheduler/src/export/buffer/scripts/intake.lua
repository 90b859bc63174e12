-- Opens or stops the intake. KEYS: anything, state. ARGV: open, emergency or stopped.
-- Answers how it was; nothing where it was open.
local before = redis.call('HGET', KEYS[2], 'intake')
if ARGV[1] == 'open' then
    redis.call('HDEL', KEYS[2], 'intake')
elseif ARGV[1] == 'stopped' or not before then
    redis.call('HSET', KEYS[2], 'intake', ARGV[1])
end
return before
