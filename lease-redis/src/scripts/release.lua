-- Releases the keys of one or more grants. ARGV: `publish`; `tokens`; then for each grant the text that its
-- claim writes to a free key. The text begins with the nonce.
-- Returns the number of grants if each held its key. Otherwise, for each grant, 1 if it held its key, 0 if it
-- did not, or an error as a word.
--
-- Compares only the nonce, because a late request of the claim may have been granted without the knowledge of
-- a client.

-- A key whose lock was not marked or extended still has the text of its claim. One MGET and one DEL for all
-- such keys take a third of the time of a GET and a DEL for each key.
local texts, unchanged, changed = redis.pcall('MGET', unpack(KEYS)), {}, {}
for place, lease in ipairs(KEYS) do
    if texts[place] == ARGV[place + 2] then
        unchanged[#unchanged + 1] = lease
    else
        changed[#changed + 1] = place
    end
end
if #unchanged > 0 then
    redis.call('DEL', unpack(unchanged))
end
if #changed == 0 then
    return #KEYS
end

--- functions

local publish, tokens = ARGV[1], ARGV[2]

local function release(lease, nonce)
    local text = redis.pcall('GET', lease)
    -- A late plain claim may hold the key while its nonce is still queued, so the claim leaves the queue
    -- first.
    if not text then
        if tokens and redis.pcall('EXISTS', lease .. ':queue') == 1 then
            leave_queue(lease, nonce)
            grants_next(lease, tokens, 'q')
        end
        return 0
    end
    if type(text) == 'string' then
        if has_queue(text) then
            leave_queue(lease, nonce)
        end
        if string.sub(text, 1, 32) ~= nonce or string.sub(text, 33, 33) == 'r' then
            return 0
        end
        end_lock(lease, text, tokens, publish, lease .. ':freed')
        return 1
    end
    if redis.call('HGET', lease, 'granted') ~= nonce or not remove_end(lease) then
        return 0
    end
    notify(lease, publish, lease .. ':freed')
    return 1
end

local answers = {}
for place = 1, #KEYS do
    answers[place] = 1
end
for _, place in ipairs(changed) do
    -- A key of another program fails only its own release.
    local done, answer = pcall(release, KEYS[place], string.sub(ARGV[place + 2], 1, 32))
    if not done then
        answer = '!' .. (type(answer) == 'table' and answer.err or tostring(answer))
        if string.find(answer, 'READONLY') then
            return redis.error_reply('READONLY ' .. answer)
        end
    end
    answers[place] = answer
end
return answers
