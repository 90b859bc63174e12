-- Releases the keys of one or more grants.
-- KEYS: the lease of each. ARGV: the command that publishes; then nonce and channel of each; then on one
-- logical server the name of the tokens.
-- Returns, for each grant, 1 if it was released, 0 if it did not hold its key, or an error as a word.
--
-- An expired grant is released too, if no other claim has obtained the key since. Only the nonce is compared:
-- a late request of the claim may have been granted, and nobody would know.
local publish, tokens = ARGV[1], ARGV[2 * #KEYS + 2]

local function release(lease, nonce, channel)
    local text = redis.pcall('GET', lease)
    -- First, since a late plain claim may hold the key while its nonce is still queued.
    if not text then
        if tokens and redis.pcall('EXISTS', lease .. ':queue') == 1 then
            leave_queue(lease, nonce)
            settle(lease, tokens, 'q')
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
        end_lock(lease, text, tokens, publish, channel)
        return 1
    end
    if redis.call('HGET', lease, 'granted') ~= nonce or redis.call('HDEL', lease, 'ends') == 0 then
        return 0
    end
    notify(lease, publish, channel)
    return 1
end

local answers = {}
for place = 1, #KEYS do
    -- If another program has written to a key, only its release fails.
    local done, answer = pcall(release, KEYS[place], ARGV[2 * place], ARGV[2 * place + 1])
    if not done then
        answer = '!' .. (type(answer) == 'table' and answer.err or tostring(answer))
        if string.find(answer, 'READONLY') then
            return redis.error_reply('READONLY ' .. answer)
        end
    end
    answers[place] = answer
end
return answers
