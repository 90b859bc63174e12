-- Releases the keys of one or more grants.
-- ARGV: retention; then, per grant, the beginning of the lock's text (state, mark, nonce, token, counter,
-- bound) if no client waits and no vote followed; and the token plus 1.
-- Returns, for each grant, 1 if it was released, or 0 if it did not hold the key.
--
-- The numbers grow even if the key was not held, because a late claim or restore of the grant may still
-- arrive. `others` (`release.lua`) handles all unusual cases.
local call, find = redis.pcall, string.find
local KEYS, ARGV = KEYS, ARGV
local answers, rest = {}, nil

for place = 1, #KEYS do
    local key, least, answer = KEYS[place], ARGV[2 * place + 1], nil
    local text = call('GET', key)
    if text and #text > 82 and find(text, ARGV[2 * place], 1, true) == 1 then
        answer = call('SET', key, least, 'KEEPTTL').ok and 1
    end
    if answer then
        answers[place] = answer
    else
        answers[place], rest = false, rest or {}
        rest[#rest + 1] = place
    end
end
return rest and others(answers, rest) or answers
