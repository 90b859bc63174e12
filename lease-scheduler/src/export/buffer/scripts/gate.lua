-- What buffers and buckets share: whether anything is taken in, and under which token one works.

-- Why nothing is taken in; nothing where the intake is open. What was stopped for lack of room opens
-- by itself once nothing waits.
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

-- The largest token, if it is larger than this one; otherwise this one is the largest now.
local function overtaken(state, token)
    local largest = redis.call('HGET', state, 'token')
    if largest and tonumber(token) < tonumber(largest) then
        return largest
    end
    if largest ~= token then
        -- A server that is full refuses a script's first write if it may need room, and lets one go
        -- on that has removed something: so what is full can be drained.
        redis.call('HDEL', state, 'token')
        redis.call('HSET', state, 'token', token)
    end
end
