-- Extends one or more grants.
-- KEYS: the lease of each. ARGV: retention (ms); then nonce, sequence, ttl (ms) and token of each.
-- Returns, for each grant, 1 if it was extended (the usual case), or the reason as a word.
local retention = ARGV[1]

local function heartbeat(lease, nonce, sequence, ttl, token)
    local held = redis.call('HMGET', lease, 'granted', 'ends', 'sequence', 'evicted', 'round', 'kept')
    if held[1] ~= nonce or (tonumber(held[2]) or 0) <= now() then
        return why_lost(lease, nonce, tonumber(token))
    end
    if held[4] == nonce then
        return 'revoked'
    end
    if tonumber(held[3]) >= tonumber(sequence) then
        return 'overtaken'
    end
    local ends = now() + ttl * 1000
    if type(redis.pcall('HSET', lease, 'sequence', sequence, 'ends', ends)) == 'table' then
        -- A server at its maxmemory refuses HSET unless the script has written before. HDEL, which
        -- needs no memory, counts as a write although it finds nothing.
        redis.call('HDEL', lease, '')
        redis.call('HSET', lease, 'sequence', sequence, 'ends', ends)
    end
    if held[5] then
        -- This node's vote may be from an earlier round, which is being withdrawn. From now on, the
        -- grant depends on this vote.
        redis.call('HSET', lease, 'round', beyond_all_rounds, 'under', token)
        raise_counter(lease, tonumber(token))
    end
    keep(lease, held[6], retention + ttl)
    return 1
end

local answers = {}
for place = 1, #KEYS do
    local at = 4 * place - 2
    -- If another program has written to a key, only its heartbeat fails.
    local done, answer = pcall(heartbeat, KEYS[place], ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3])
    if not done then
        answer = '!' .. (type(answer) == 'table' and answer.err or tostring(answer))
        -- An error that this server is no longer the master fails all heartbeats.
        if string.find(answer, 'READONLY') then
            return redis.error_reply('READONLY ' .. answer)
        end
    end
    answers[place] = answer
end
return answers
