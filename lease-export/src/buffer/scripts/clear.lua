-- Removes all events, if the intake is stopped. KEYS: stream, state.
-- Answers how many there were; nothing where it is open.
if (redis.call('HGET', KEYS[2], 'intake') or 'open') == 'open' then
    return false
end
-- The stream itself stays: it remembers the last position, so that none is used twice.
local pending = redis.call('XLEN', KEYS[1])
redis.call('XTRIM', KEYS[1], 'MAXLEN', 0)
return pending
