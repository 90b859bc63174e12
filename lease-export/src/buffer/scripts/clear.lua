-- Removes all events if the intake is stopped. KEYS: stream, state.
-- Returns the number of events, or nothing if the intake is open.
if (redis.call('HGET', KEYS[2], 'intake') or 'open') == 'open' then
    return false
end
-- XTRIM keeps the stream's last id, so that no position is used twice. DEL would not.
local pending = redis.call('XLEN', KEYS[1])
redis.call('XTRIM', KEYS[1], 'MAXLEN', 0)
return pending
