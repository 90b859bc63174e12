-- Returns why the intake of a buffer or bucket store is stopped, or nothing if the intake is open.
-- If nothing is pending, first opens an intake that was stopped for lack of room.
local function stopped(state, waiting, at_first)
    local intake = redis.call('HGET', state, 'intake') or at_first
    if intake == 'emergency' and waiting == 0 then
        intake = 'open'
        redis.call('HSET', state, 'intake', intake)
    end
    if intake ~= 'open' then
        return intake
    end
end

