-- Votes on one or more claims.
-- ARGV: retention; the ttl of all claims, with a w before it if the client waits for the keys, and with a space and
-- the claim's first proposal after it if the proposals from this one on were not granted; then, for each claim,
-- the text of the lock without the former bound and the end.
-- Returns, for each claim: 0 if the node accepts it, or its time if the key had no counter; a text with the
-- counter or the time if the proposal is too small; or another claim's lock and its remaining time (ms).
--
-- In the usual case, the key is free, and its counter equals its bound. `others` (`claim.lua`) handles other
-- cases.
local call, sub, find = redis.pcall, string.sub, string.find
local KEYS, ARGV = KEYS, ARGV
local retention, answers, rest, ends = ARGV[1], {}, nil, nil

for place = 1, #KEYS do
    local key, text = KEYS[place], ARGV[place + 2]
    local former, answer = call('GET', key), nil
    if former and #former == 16 and sub(text, 35, 50) > former and not find(former, '%D') then
        if not ends then
            local time, ttl = call('TIME'), string.match(ARGV[2], '%d+')
            -- Computes the same number as `end_of` in `common.lua`.
            local number = math.min(time[1] * 1000000 + time[2] + ttl * 1000, 9007199254740991)
            local part = number % 1000000
            ends = string.format('%010d%06d', (number - part) / 1000000, part)
        end
        answer = call('SET', key, text .. former .. ends, 'PX', retention).ok and 0
    end
    if answer then
        answers[place] = answer
        if sub(text, 2, 2) == 'w' then
            -- Publishes the same message as `tell_taken` in `common.lua`.
            call('PUBLISH', key .. ':freed', 'taken')
        end
    else
        answers[place], rest = false, rest or {}
        rest[#rest + 1] = place
    end
end
return rest and others(answers, rest) or answers
