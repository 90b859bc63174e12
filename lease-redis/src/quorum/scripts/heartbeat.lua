-- Extends one or more grants.
-- KEYS: lock and counter of each. ARGV: retention (ms); then nonce, number of the heartbeat, ttl (ms) and
-- token of each.
-- Returns, for each grant, 1 if it was extended (the usual case), or the reason as a word.
local retention = ARGV[1]

-- Why a grant does not hold a free key. A release makes the bound larger than its token by 1.
local function why_lost(counter, token)
    local numbers = call('GET', counter)
    local bound = numbers and tonumber(match(numbers, '%d+$')) or 0
    local above = bound - tonumber(token)
    return above <= 0 and 'expired' or above == 1 and 'revoked' or 'superseded'
end

return answers_of(#KEYS / 2, function(place)
    local lock, counter, at = KEYS[2 * place - 1], KEYS[2 * place], 4 * place - 2
    local nonce, beat, ttl, token = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
    local text = call('GET', lock)
    if not text then
        return why_lost(counter, token)
    end
    if sub(text, 1, 33) ~= nonce .. 'h' then
        return sub(text, 1, 32) == nonce and 'revoked' or 'superseded'
    end
    local held, last, rest = match(text, '^(%d+) (%d+)( .*)$', 35)
    if held ~= token then
        -- The lock of an earlier proposal gets the token of the grant.
        if exceeds(held, token) then
            return 'superseded'
        end
    elseif not exceeds(beat, last) then
        return 'overtaken'
    end
    -- First, since a server at its maxmemory refuses SET unless the script has written before.
    call('PEXPIRE', counter, retention)
    call('SET', lock, sub(text, 1, 34) .. token .. ' ' .. beat .. rest, 'PX', ttl)
    return 1
end)
