-- Extends one or more grants. A heartbeat takes a child out of its session. ARGV: retention, `has_locks`;
-- then nonce, request, beat, ttl and token of each grant. Returns, for each grant, 1 if it was extended, or
-- the reason as a word.
local retention, has_locks = ARGV[1], ARGV[2] == '1'

local function extend_lock(lease, text, nonce, request, beat, ttl, token)
    local _, last, _, lessee = parts_of(text)
    if string.sub(text, 1, 33) ~= nonce .. 'h' or not is_grant(text, request, token) then
        return why_lock_lost(text, nonce)
    end
    if tonumber(last) >= tonumber(beat) then
        return 'overtaken'
    end
    write_lock(lease, string.sub(text, 1, 34) .. request .. ' ' .. beat .. ' ' .. token .. ' ' .. lessee, ttl)
    return 1
end

local function extend_record(lease, nonce, beat, ttl, token)
    local held = redis.call('HMGET', lease, 'granted', 'ends', 'sequence', 'evicted', 'kept', 'token',
        'parent')
    if held[1] ~= nonce or held[6] ~= token or (tonumber(held[2]) or 0) <= now() then
        return why_lost(lease, nonce, token)
    end
    if held[4] == nonce then
        return 'revoked'
    end
    if tonumber(held[3]) >= tonumber(beat) then
        return 'overtaken'
    end
    if held[7] then
        remove_end(lease)
        held[5] = redis.call('HGET', lease, 'kept')
    end
    local ends = now() + ttl * 1000
    if type(redis.pcall('HSET', lease, 'sequence', beat, 'ends', ends)) == 'table' then
        -- HDEL counts as a write, even for a missing field. So HSET succeeds on a server at its maxmemory.
        redis.call('HDEL', lease, '')
        redis.call('HSET', lease, 'sequence', beat, 'ends', ends)
    end
    keep(lease, held[5], retention + ttl)
    return 1
end

local function heartbeat(lease, nonce, request, beat, ttl, token)
    local text = has_locks and lock_at(lease)
    if text then
        return extend_lock(lease, text, nonce, request, beat, ttl, token)
    end
    return extend_record(lease, nonce, beat, ttl, token)
end

local answers = {}
for place = 1, #KEYS do
    local at = 5 * place - 2
    -- A key of another program fails only its own heartbeat.
    local done, answer = pcall(heartbeat, KEYS[place], ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3],
        ARGV[at + 4])
    if not done then
        answer = '!' .. (type(answer) == 'table' and answer.err or tostring(answer))
        if string.find(answer, 'READONLY') then
            return redis.error_reply('READONLY ' .. answer)
        end
    end
    answers[place] = answer
end
return answers
