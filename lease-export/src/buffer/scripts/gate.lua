-- Why nothing is taken in, for buffers and buckets alike; nothing where the intake is open. What was
-- stopped for lack of room opens by itself once nothing waits.
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

