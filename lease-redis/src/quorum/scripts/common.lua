-- Precedes every script of a node, without the functions that the script does not call. Ttls, lengths and the
-- retention are in milliseconds.
--
-- A node has one string for a key. The server deletes it days after the last claim, heartbeat or late release.
-- While the key is free, the text is the *counter*, or the counter, a space and the *bound*:
--
--   counter   the node accepts only larger proposals
--   bound     the node restores no grant with a smaller token; the bound is at most the counter
--
-- After each grant and release, the two are equal, because Redis stores one number in a few bytes. While the
-- key is held or reserved, the text is a *lock*:
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
-- All numbers but the heartbeat's have 16 digits, so scripts compare them as texts. If the end of a lock has
-- passed, the lock is not held, but its counter and bound still apply. If the counter is absent, the node
-- uses its time minus 0.1 s. A counter of 0 in a restored lock counts as absent. So nodes whose clocks differ
-- a little accept the same proposal for a new key.

local call, sub, match, find = redis.call, string.sub, string.match, string.find
local KEYS, ARGV = KEYS, ARGV
local NONE = '0000000000000000'

-- Returns a number as 16 digits, in two parts, because Lua formats integers twice as fast as other numbers.
local function digits(number)
    local rest = number % 1000000
    return string.format('%010d%06d', (number - rest) / 1000000, rest)
end

local function now()
    local time = call('TIME')
    return time[1] * 1000000 + time[2]
end

-- `time` is in microseconds. The limit is the largest number that Lua represents exactly.
local function end_of(time, ttl)
    return digits(math.min(time + ttl * 1000, 9007199254740991))
end

-- Returns whether a text is a lock, even if its time has passed. Raises an error for other versions' texts.
local function is_lock(text)
    if #text > 115 and find(text, '^[hxr][w-]') then
        return true
    end
    if (#text == 16 or #text == 33) and find(text, '^%d+ ?%d+$') then
        return false
    end
    error('WRONGTYPE no lock of this version: a client of an earlier version wrote it, or')
end

local function is_held(text, time)
    return text and is_lock(text) and sub(text, -16) >= digits(time)
end

local function numbers_in(text)
    if not text then
        return NONE, NONE
    elseif is_lock(text) then
        return sub(text, 51, 66), sub(text, 67, 82)
    end
    return sub(text, 1, 16), sub(text, -16)
end

local function free_text(count, bound)
    return count == bound and count or count .. ' ' .. bound
end

local function floor_of(count, time)
    return count == NONE and digits(time - 100000) or count
end

local function outbid(count, time)
    return count == NONE and '@' .. digits(time) or '<' .. count
end

-- Tells the waiters that the key is held, so that they stop waiting for their turn to claim it.
local function tell_taken(key)
    redis.pcall('PUBLISH', key .. ':freed', 'taken')
end

local function mark(key, text)
    if sub(text, 2, 2) ~= 'w' then
        call('SETRANGE', key, 1, 'w')
        tell_taken(key)
    end
end

local function report(text, time)
    return { text, math.floor((sub(text, -16) - time) / 1000) }
end

-- Votes for a larger proposal of the claim that already holds the lock. The claim may have been granted
-- before. So the former bound is the proposal, and stays after a withdrawal of this vote. The client knows that its
-- proposals from `earlier` on were not granted. If the last vote was for one of them, the former bound does not
-- change, so that a heartbeat may restore another grant after a withdrawal. PEXPIRE counts as a write, so SET
-- succeeds on a server at its maxmemory.
local function vote_again(key, held, text, time, ttl, retention, earlier)
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
    local former = earlier and last >= earlier and sub(held, -32, -17) or token
    call('PEXPIRE', key, retention)
    call('SET', key, 'h' .. sub(held, 2, 2) .. sub(text, 3) .. former .. end_of(time, ttl), 'PX', retention)
    return 0
end

local function holds(text, nonce, above)
    return sub(text, 3, 34) == nonce and sub(text, 1, 1) ~= 'r' and sub(text, 35, 50) < above
end

local function larger(one, other)
    return one > other and one or other
end

-- `least` is the token of a released grant plus 1.
local function raised(text, least)
    local count, bound = numbers_in(text)
    if count == NONE then
        count = floor_of(count, now())
    end
    return larger(count, least), larger(bound, least)
end

-- Raises a key's counter and bound to `least`. In a lock, also raises the former bound, because the vote may
-- be withdrawn.
local function raise(key, text, least, retention)
    local count, bound = raised(text, least)
    local new = free_text(count, bound)
    if text and is_lock(text) then
        local former = larger(sub(text, -32, -17), least)
        new = sub(text, 1, 50) .. count .. bound .. sub(text, 83, -33) .. former .. sub(text, -16)
    end
    call('SET', key, new, 'PX', retention)
end

-- Publishes the number of waiting clients. Many clients claim the key one after another. A user without the
-- right to publish, or to count subscribers, can still release.
local function notify(key, text)
    if sub(text, 2, 2) == 'w' then
        local channel = key .. ':freed'
        redis.pcall('PUBLISH', channel, redis.pcall('PUBSUB', 'NUMSUB', channel)[2] or '')
    end
end

-- With `rest`, adds only the answers for its places to `answers`. A key of another program fails only its own
-- request. If this server is no longer the master, all requests fail.
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

-- Like `answers_of`, for requests that must succeed on a server at its maxmemory. Such a server refuses SET
-- unless the script has written before. PEXPIRE needs no memory, and counts as a write.
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
