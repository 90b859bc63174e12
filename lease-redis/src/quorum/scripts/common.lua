-- Precedes every script of a node, without the functions that the script does not call.
--
-- A node has one string for a key. The server deletes it days after the last claim, heartbeat or late release.
-- While the key is free, the text is the *counter*, or the counter, a space and the *bound*:
--
--   counter   the node accepts only larger proposals
--   bound     the node restores only grants whose token is not smaller; at most the counter
--
-- After each grant and each release both are equal: Redis stores a single number in a few bytes. While the key
-- is held or reserved, the text is that of a *lock*:
--
--   1         h: held, x: evicted, r: reserved for no lessee
--   2         w: a client waits for the key, -: no client waits
--   3..34     the nonce of the claim, or of the grant that was released with a reservation
--   35..50    the token
--   51..66    the counter
--   67..82    the bound
--   83..      the number of the last heartbeat, a space, and the lessee
--   the last 32: the former bound, which is the bound before the vote that the lock holds; then the last
--             microsecond of the node's clock (since 1970) at which the lock is valid
--
-- Every number but that of the heartbeat has 16 digits, so such numbers compare as texts. A lock whose time
-- has passed is not held, but its counter and bound still apply. If the counter is absent, or if it is 0 in a
-- lock that was restored without one, the node uses its time less a tolerance. So nodes whose clocks differ a
-- little accept the same proposal for a new key.

-- As locals, since Lua finds these faster than fields of globals.
local call, sub, match, find = redis.call, string.sub, string.match, string.find
local KEYS, ARGV = KEYS, ARGV
local NONE = '0000000000000000'

-- A number as 16 digits. In two parts, since Lua formats integers twice as fast as other numbers.
local function digits(number)
    local rest = number % 1000000
    return string.format('%010d%06d', (number - rest) / 1000000, rest)
end

-- The node's time in microseconds since 1970.
local function now()
    local time = call('TIME')
    return time[1] * 1000000 + time[2]
end

-- The end of a lock that begins at `time` and lasts for `ttl` milliseconds: at most the largest number that
-- Lua represents exactly.
local function end_of(time, ttl)
    return digits(math.min(time + ttl * 1000, 9007199254740991))
end

-- Whether a text is that of a lock, also of one whose time has passed. Earlier versions wrote other texts.
local function is_lock(text)
    if #text > 115 and find(text, '^[hxr][w-]') then
        return true
    end
    if (#text == 16 or #text == 33) and find(text, '^%d+ ?%d+$') then
        return false
    end
    error('WRONGTYPE no lock of this version: a client of an earlier version wrote it, or')
end

-- Whether a text is that of a lock which is valid at `time`.
local function is_held(text, time)
    return text and is_lock(text) and sub(text, -16) >= digits(time)
end

-- The counter and the bound in a text, or zeros if there are none.
local function numbers_in(text)
    if not text then
        return NONE, NONE
    elseif is_lock(text) then
        return sub(text, 51, 66), sub(text, 67, 82)
    end
    return sub(text, 1, 16), sub(text, -16)
end

-- The text of a free key with these numbers.
local function free_text(count, bound)
    return count == bound and count or count .. ' ' .. bound
end

-- The counter that proposals are compared with.
local function floor_of(count, time)
    return count == NONE and digits(time - 100000) or count
end

-- The refusal of a proposal that is too small: the counter, or the time of a node without a counter.
local function outbid(count, time)
    return count == NONE and '@' .. digits(time) or '<' .. count
end

-- Publishes to the waiters that the key is held. After a message that the key is free, they wait for their
-- turn to claim it.
local function tell_taken(key)
    redis.pcall('PUBLISH', key .. ':freed', 'taken')
end

-- Notes that a client waits for the key: its release is then published.
local function mark(key, text)
    if sub(text, 2, 2) ~= 'w' then
        call('SETRANGE', key, 1, 'w')
        tell_taken(key)
    end
end

-- The lock of another claim, and how long it lasts (ms).
local function report(text, time)
    return { text, math.floor((sub(text, -16) - time) / 1000) }
end

-- Votes again for the claim that holds the lock already, by a larger proposal. The claim may have been
-- granted before, so a withdrawal of this vote leaves a trace: the former bound is the proposal.
--
-- PEXPIRE comes first: a server at its maxmemory refuses SET unless the script has written before.
local function vote_again(key, held, text, time, ttl, retention)
    local last, token = sub(held, 35, 50), sub(text, 35, 50)
    if last == token then
        return 0
    end
    if last > token then
        return outbid(last)
    end
    local count = numbers_in(held)
    if token <= floor_of(count, time) then
        return outbid(count, time)
    end
    call('PEXPIRE', key, retention)
    call('SET', key, 'h' .. sub(held, 2, 2) .. sub(text, 3) .. token .. end_of(time, ttl), 'PX', retention)
    return 0
end

-- Whether a lock with this text is held by the claim, with a token below `above`.
local function holds(text, nonce, above)
    return sub(text, 3, 34) == nonce and sub(text, 1, 1) ~= 'r' and sub(text, 35, 50) < above
end

-- The larger of two numbers.
local function larger(one, other)
    return one > other and one or other
end

-- The numbers in a text, raised to at least `least`, which is the token of a released grant plus 1.
local function raised(text, least)
    local count, bound = numbers_in(text)
    if count == NONE then
        count = floor_of(count, now())
    end
    return larger(count, least), larger(bound, least)
end

-- Raises the numbers of a key to `least`; in a lock, also the former bound: its vote may be withdrawn.
local function raise(key, text, least, retention)
    local count, bound = raised(text, least)
    local new = free_text(count, bound)
    if text and is_lock(text) then
        local former = larger(sub(text, -32, -17), least)
        new = sub(text, 1, 50) .. count .. bound .. sub(text, 83, -33) .. former .. sub(text, -16)
    end
    call('SET', key, new, 'PX', retention)
end

-- Wakes the waiters, if there are any, with the number of their clients: many clients claim the key one after
-- another. A user without the right to publish or to count can still release.
local function notify(key, text)
    if sub(text, 2, 2) == 'w' then
        local channel = key .. ':freed'
        redis.pcall('PUBLISH', channel, redis.pcall('PUBSUB', 'NUMSUB', channel)[2] or '')
    end
end

-- The answers to several requests, one for each key. With `rest`, only for its places, added to `answers`. If
-- another program has written to a key, only its request fails. If this server is no longer the
-- master, all requests fail.
local function answers_of(request, answers, rest)
    local at, count, place = 0, rest and #rest or #KEYS, nil
    answers = answers or {}
    local function answer_rest()
        while at < count do
            at = at + 1
            place = rest and rest[at] or at
            answers[place] = request(KEYS[place], place)
        end
    end
    while at < count do
        local done, fault = pcall(answer_rest)
        if not done then
            fault = type(fault) == 'table' and fault.err or tostring(fault)
            if find(fault, 'READONLY') then
                return redis.error_reply('READONLY ' .. fault)
            end
            answers[place] = '!' .. fault
        end
    end
    return answers
end

-- As `answers_of`, for requests that must succeed on a server at its maxmemory. It refuses SET unless the
-- script has written before, and PEXPIRE, which needs no memory, counts as a write.
local function answers_without_memory(retention, request, answers, rest)
    return answers_of(function(key, place)
        local done, answer = pcall(request, key, place)
        if done then
            return answer
        end
        local fault = type(answer) == 'table' and answer.err or tostring(answer)
        if not find(fault, 'OOM') then
            error(answer, 0)
        end
        call('PEXPIRE', key, retention)
        return request(key, place)
    end, answers, rest)
end
