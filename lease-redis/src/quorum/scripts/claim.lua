-- Votes on the claims that `claim_usual.lua` leaves to this script.
local answers, rest = ...
local retention, ttl, earlier, time = ARGV[1], match(ARGV[2], '%d+'), match(ARGV[2], ' (%d+)'), now()

return answers_of(function(key, place)
    local text, former = ARGV[place + 2], call('GET', key)
    if is_held(former, time) then
        if sub(former, 1, 1) == 'h' and sub(former, 3, 34) == sub(text, 3, 34) then
            return vote_again(key, former, text, time, ttl, retention, earlier)
        end
        if sub(ARGV[2], 1, 1) == 'w' then
            mark(key, former)
        end
        return report(former, time)
    end
    local count, bound = numbers_in(former)
    if sub(text, 35, 50) <= floor_of(count, time) then
        return outbid(count, time)
    end
    call('SET', key, text .. bound .. end_of(time, ttl), 'PX', retention)
    if sub(text, 2, 2) == 'w' then
        tell_taken(key)
    end
    return count == NONE and time or 0
end, answers, rest)
