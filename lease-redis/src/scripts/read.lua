-- Reads one or more records. KEYS: the lease and the attributes of each.
-- Returns, for each key: its holder; its token or nil; its attributes; 1 if its last grant has ended for
-- good; and its reservation as the only lessee and the time left (ms), or nothing. Or an error as a word.
local has_locks = ARGV[1] == '1'

local function reservation_of(only, left)
    return left > 0 and { only, math.ceil(left) } or {}
end

local function read(lease, attributes)
    local text = lock_at(lease)
    if text then
        local is_reserved = string.sub(text, 33, 33) == 'r'
        local reserved = reservation_of('', is_reserved and redis.call('PTTL', lease) or 0)
        return { holder_at(lease), false, {}, is_reserved and 1 or 0, reserved }
    end
    local past = redis.call('HMGET', lease, 'token', 'ends', 'until', 'only')
    local token = last_token(lease, has_locks, past[1])
    local has_ended = token ~= '' and not past[2]
    local left = ((tonumber(past[3]) or 0) - now()) / 1000
    return { report_holder(lease), token ~= '' and token, redis.call('HGETALL', attributes), has_ended and 1 or 0,
        reservation_of(past[4], left) }
end

local answers = {}
for place = 1, #KEYS, 2 do
    -- A key of another program makes only its own record unreadable.
    local done, answer = pcall(read, KEYS[place], KEYS[place + 1])
    if not done then
        answer = '!' .. (type(answer) == 'table' and answer.err or tostring(answer))
    end
    answers[(place + 1) / 2] = answer
end
return answers
