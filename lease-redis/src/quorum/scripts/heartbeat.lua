-- Extends one or more grants. Returns, for each grant, 1 if it was extended, or the reason as a word.
-- ARGV: retention; then, per grant, its nonce, the number of the heartbeat, the ttl and the token; then 'again'
-- if the node also extends a grant that already has this number.
local retention, time = ARGV[1], now()
local past = ARGV[4 * #KEYS + 2] == 'again' and -1 or 0

-- Returns the reason why the grant of a free key was lost. A release raises the bound to its token plus 1.
local function why_lost(text, token)
    local _, bound = numbers_in(text)
    local above = bound - token
    return above <= 0 and 'expired' or above == 1 and 'revoked' or 'superseded'
end

return answers_without_memory(retention, function(key, place)
    local at = 4 * place - 2
    local nonce, beat, ttl, token = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
    local text = call('GET', key)
    if not is_held(text, time) then
        return why_lost(text, token)
    end
    if sub(text, 3, 34) ~= nonce then
        return 'superseded'
    elseif sub(text, 1, 1) ~= 'h' then
        return 'revoked'
    end
    local held, last, rest = sub(text, 35, 50), match(text, '^(%d+)( .*)$', 83)
    if held ~= token then
        -- The lock has the token of another proposal. A smaller token is replaced by the grant's token.
        if held > token then
            return 'superseded'
        end
    elseif tonumber(beat) <= tonumber(last) + past then
        return 'overtaken'
    end
    local numbers = sub(text, 51, 82)
    text = sub(text, 1, 34) .. token .. numbers .. beat .. sub(rest, 1, -17) .. end_of(time, ttl)
    call('SET', key, text, 'PX', retention)
    return 1
end)
