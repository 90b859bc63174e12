-- Votes on one or more claims.
-- KEYS: lock and counter of each. ARGV: retention (ms); then, of each, the text of the lock without the
-- former bound, the proposed token, ttl (ms), and 1 if the client waits for the key.
-- Returns, for each claim, 0 if the node accepts it; the node's time, if it accepts it and had no counter;
-- the larger counter, or the time, as a text; or the text and the expiry (ms) of another claim's lock.
--
-- Most proposals are accepted, so the node first writes the counter and reads the former one, in one
-- command. Then it writes the lock, if the key is free. Otherwise it writes the former counter back.
local retention = ARGV[1]

return answers_of(#KEYS / 2, function(place)
    local lock, counter, at = KEYS[2 * place - 1], KEYS[2 * place], 4 * place - 2
    local text, token, ttl = ARGV[at], ARGV[at + 1], ARGV[at + 2]
    local former = call('SET', counter, token, 'PX', retention, 'GET')
    local count, bound, time = former, former, nil
    if not former or find(former, ' ', 1, true) then
        count, bound, time = numbers_in(former)
    end
    if exceeds(token, count) and call('SET', lock, text .. ' ' .. bound, 'PX', ttl, 'NX') then
        return time and tonumber(time) or 0
    end
    if former then
        call('SET', counter, former, 'PX', retention)
    else
        call('DEL', counter)
    end
    local held = call('GET', lock)
    if not held then
        return outbid(count, time)
    end
    if sub(held, 1, 33) == sub(text, 1, 33) then
        return vote_again(lock, counter, held, text, token, ttl, retention)
    end
    if ARGV[at + 3] == '1' then
        mark(lock, held)
    end
    return report(lock, held)
end)
