-- Extends one or more grants.
-- KEYS: the lease of each. ARGV: retention (ms), 1 on one logical server; then nonce, number of the request,
-- number of the heartbeat, ttl (ms) and token of each.
-- A heartbeat takes a child out of its session.
-- Returns, for each grant, 1 if it was extended (the usual case), or the reason as a word.
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
        -- A server at its maxmemory refuses HSET unless the script has written before. HDEL, which
        -- needs no memory, counts as a write, although the field does not exist.
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
    -- If another program has written to a key, only its heartbeat fails.
    local done, answer = pcall(heartbeat, KEYS[place], ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3],
        ARGV[at + 4])
    if not done then
        answer = '!' .. (type(answer) == 'table' and answer.err or tostring(answer))
        -- If this server is no longer the master, all heartbeats fail.
        if string.find(answer, 'READONLY') then
            return redis.error_reply('READONLY ' .. answer)
        end
    end
    answers[place] = answer
end
return answers
