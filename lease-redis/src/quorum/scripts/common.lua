-- Precedes every script of a node, without the functions that the script does not call.
--
-- A node has two strings for a key. The *lock* exists while the key is held or reserved, and the server's
-- expiry ends it. Its text:
--
--   32 characters   the nonce of the claim, or of the grant that was released with a reservation
--   1               h: held, x: evicted, r: reserved for nobody
--   1               w: a client waits for the key, -: none does
--   the rest        the token, the number of the last heartbeat, the lessee, and the former bound, separated
--                   by spaces
--
-- The *counter* is kept for days after the last use of the key. Its text has two numbers:
--
--   counter         the node accepts only larger proposals
--   bound           the node restores only grants whose token is not smaller; at most the counter
--
-- If both are equal, as after each grant and each release, the text is one number: Redis stores that in a
-- few bytes. The former bound in the lock is the bound before the vote that the lock holds. If the counter is
-- absent, it is the node's time less a tolerance, so that nodes whose clocks differ a little accept the same
-- proposal for a new key.
--
-- Numbers stay texts, without leading zeros: Lua converts and compares 16 digits slowly, and writes them
-- only by string.format.

-- As locals, since Lua finds these faster than fields of globals.
local call, sub, match, find = redis.call, string.sub, string.match, string.find
local KEYS, ARGV = KEYS, ARGV

-- Whether one number is larger than another, both as texts.
local function exceeds(one, other)
    return #one > #other or #one == #other and one > other
end

-- The counter and the bound, from the text of the counter. If it is absent, also the node's time, in
-- microseconds since 1970.
local tolerance = 100000
local function numbers_in(text)
    if not text then
        local time = call('TIME')
        local now = time[1] * 1000000 + time[2]
        return string.format('%.0f', now - tolerance), '0', string.format('%.0f', now)
    end
    local count, bound = match(text, '^(%d+) ?(%d*)$')
    return count, bound == '' and count or bound
end

-- The token of a lock with this text.
local function token_in(text)
    return match(text, '^%d+', 35)
end

-- The refusal of a proposal that is too small: the counter, or the time of a node without a counter.
local function outbid(count, time)
    return time and '@' .. time or '<' .. count
end

-- Notes that a client waits for the key: its release is then published.
local function mark(lock, text)
    if sub(text, 34, 34) ~= 'w' then
        call('SETRANGE', lock, 33, 'w')
    end
end

-- The lock of another claim, and how long it lasts.
local function report(lock, text)
    return { text, call('PTTL', lock) }
end

-- Votes again for the claim that holds the lock already, by a larger proposal. The claim may have been
-- granted before, so a withdrawal of this vote leaves a trace: the former bound is the proposal.
--
-- PEXPIRE comes first: a server at its maxmemory refuses SET unless the script has written before.
local function vote_again(lock, counter, held, text, token, ttl, retention)
    local last = token_in(held)
    if last == token then
        return 0
    end
    if exceeds(last, token) then
        return outbid(last)
    end
    local count, _, time = numbers_in(call('GET', counter))
    if not exceeds(token, count) then
        return outbid(count, time)
    end
    call('PEXPIRE', lock, ttl)
    call('SET', lock, sub(text, 1, 33) .. sub(held, 34, 34) .. sub(text, 35) .. ' ' .. token, 'PX', ttl)
    call('SET', counter, token, 'PX', retention)
    return 0
end

-- Whether a lock with this text is held by the claim, with a token below `above`.
local function holds(text, nonce, above)
    return sub(text, 1, 32) == nonce and sub(text, 33, 33) ~= 'r' and exceeds(above, token_in(text))
end

-- Makes the numbers of a key at least `least`, the token of a released grant plus 1: also the former bound
-- of a lock with this text, whose vote may be withdrawn.
local function raise(counter, least, retention, lock, text)
    local old = call('SET', counter, least, 'PX', retention, 'GET')
    if not old or find(old, ' ', 1, true) or exceeds(old, least) then
        local count, bound = numbers_in(old)
        if exceeds(count, least) then
            call('SET', counter, count .. ' ' .. (exceeds(bound, least) and bound or least), 'PX', retention)
        end
    end
    if text then
        local rest, former = match(text, '^(.* )(%d+)$')
        if former and exceeds(least, former) then
            call('SET', lock, rest .. least, 'KEEPTTL')
        end
    end
end

-- Wakes the waiters, if there are any. A user without the right to publish can still release.
local function notify(lock, text)
    if sub(text, 34, 34) == 'w' then
        redis.pcall('PUBLISH', lock .. ':freed', '')
    end
end

-- The answers to several requests. If another program has written to a key, only its request fails. An
-- error that this server is no longer the master fails all.
local function answers_of(count, request)
    local answers, place = {}, 0
    local function answer_rest()
        while place < count do
            place = place + 1
            answers[place] = request(place)
        end
    end
    while place < count do
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
