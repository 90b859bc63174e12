-- Keeps grants alive: one, or as many as are given.
-- KEYS: holder and counter of each. ARGV: retention (ms); then nonce, beat, ttl (ms) and token of
-- each.
local retention = ARGV[1]

local function heartbeat(holder, counter, nonce, beat, ttl, token)
    local held = redis.call('HMGET', holder, 'nonce', 'beat', 'evicted', 'token', 'ask')
    if held[1] ~= nonce then
        return why_lost(counter, nonce, tonumber(token), held[1])
    end
    if held[3] then
        return 'revoked'
    end
    if tonumber(held[2]) >= tonumber(beat) then
        return 'overtaken'
    end
    redis.call('HSET', holder, 'beat', beat)
    if held[5] then
        -- This node may have heard of an earlier round alone, which is being taken back. From now
        -- on, the grant rests on it.
        redis.call('HSET', holder, 'ask', beyond_all_rounds)
    end
    if held[4] ~= token then
        redis.call('HSET', holder, 'shown', token)
        redis.call('HSET', counter, 'under', token)
    end
    redis.call('PEXPIRE', holder, ttl)
    raise_counter(counter, tonumber(token))
    keep(counter, retention + ttl)
    return 'extended'
end

local answers = {}
for place = 1, #KEYS / 2 do
    local at = 4 * place - 2
    -- One that fails, because somebody else wrote to its key, fails alone.
    local done, answer = pcall(heartbeat, KEYS[2 * place - 1], KEYS[2 * place],
        ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3])
    if not done then
        answer = '!' .. (type(answer) == 'table' and answer.err or tostring(answer))
        -- But that this is no master any more concerns all.
        if string.find(answer, 'READONLY') then
            return redis.error_reply('READONLY ' .. answer)
        end
    end
    answers[place] = answer
end
return answers
