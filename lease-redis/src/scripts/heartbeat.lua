-- Keeps grants alive: one, or as many as are given.
-- KEYS: the lease of each. ARGV: retention (ms); then nonce, beat, ttl (ms) and token of each.
-- Answers 1 for each that was extended, as nearly all are, and else in a word why it was not.
local retention = ARGV[1]

local function heartbeat(lease, nonce, beat, ttl, token)
    local held = redis.call('HMGET', lease, 'granted', 'ends', 'beat', 'evicted', 'ask', 'kept')
    if held[1] ~= nonce or (tonumber(held[2]) or 0) <= now() then
        return why_lost(lease, nonce, tonumber(token))
    end
    if held[4] == nonce then
        return 'revoked'
    end
    if tonumber(held[3]) >= tonumber(beat) then
        return 'overtaken'
    end
    local ends = now() + ttl * 1000
    if type(redis.pcall('HSET', lease, 'beat', beat, 'ends', ends)) == 'table' then
        -- A server at its maxmemory refuses HSET unless the script has written before. HDEL, which
        -- needs no memory, counts as a write although it finds nothing.
        redis.call('HDEL', lease, '')
        redis.call('HSET', lease, 'beat', beat, 'ends', ends)
    end
    if held[5] then
        -- This node may have heard of an earlier round alone, which is being taken back. From now
        -- on, the grant rests on it.
        redis.call('HSET', lease, 'ask', beyond_all_rounds, 'under', token)
        raise_counter(lease, tonumber(token))
    end
    keep(lease, held[6], retention + ttl)
    return 1
end

local answers = {}
for place = 1, #KEYS do
    local at = 4 * place - 2
    -- One that fails, because somebody else wrote to its key, fails alone.
    local done, answer = pcall(heartbeat, KEYS[place], ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3])
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
