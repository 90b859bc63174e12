-- In front of every script. Each may assume that its keys are in one slot, and that time stands
-- still while it runs: what is there at its start is there until its end.
--
-- holder      hash, expires with the lease: nonce, lessee, token, beat, evicted; on a node of a
--             quorum also ask (the number of the round in which the claim was heard last, or one
--             beyond all rounds, once it is known to be granted) and shown (where this node
--             counted to another token than the grant's)
-- counter     hash, kept for days after its last use: token, granted (the nonce of the last
--             grant), lessee (of that grant), last (the nonce of the last release), until (ms) and
--             only (a reservation), deleted (the nonce that removed the record); on a node of a
--             quorum also run (of the server, when the token was given), under (the token of that
--             last grant, as far as this node was told: it may have counted further), before,
--             before_lessee and before_under (granted, lessee and under, before the last grant)
-- attributes  hash, never expires: "." marks the record, "=name" is an attribute

-- Exact below 2^53, where Lua would print 1.7e+15.
local function digits(number)
    return string.format('%.0f', number)
end

-- The ask of what is known to be granted: nothing that takes back a round is meant.
local beyond_all_rounds = '9007199254740991'

-- Microseconds since 1970.
local function now()
    local time = redis.call('TIME')
    return time[1] * 1000000 + time[2]
end

-- Keeps a counter for at least `length` milliseconds from now; a little longer, so that this need
-- not be written each time. A reservation on it may last longer yet.
local function keep(counter, length)
    if redis.call('PTTL', counter) < length then
        redis.call('PEXPIRE', counter, digits(length * 17 / 16))
    end
end

-- The larger of what is there and `token`: counters never go back.
local function raise_counter(counter, token)
    if (tonumber(redis.call('HGET', counter, 'token')) or -1) < token then
        redis.call('HSET', counter, 'token', digits(token))
    end
end

-- More than the last token, and no less than the server's time: it may have lost later ones, when
-- it restarted, or when another that had them stood in for it.
--
-- The nodes of a quorum count in ones, so that they agree: there, only another `run` of the server
-- than the one that gave the last token looks at its time.
local function next_token(token, given_under, run)
    local following = (tonumber(token) or 0) + 1
    if token and run and given_under == run then
        return following
    end
    return math.max(following, now())
end

-- This run of the server, and how many seconds it has lasted: below zero, if its clock was set
-- back since.
local function server()
    local info = redis.call('INFO', 'server')
    local run, uptime = string.match(info, 'run_id:(%x+)'), string.match(info, 'uptime_in_seconds:(%-?%d+)')
    return run, tonumber(uptime) or 0
end

-- Whether a server has not been up for `least` seconds. Where 0 is asked for, none is, not even one
-- whose clock was set back.
local function is_too_young(uptime, least)
    return tonumber(least) > 0 and uptime < tonumber(least)
end

-- Whether another grant came after the one of `nonce`. A node of a quorum may have counted
-- further than all others, for that grant or for one before it, or for votes that were taken back:
-- so what counts is the token that its last grant is known to be under, where it knows that.
local function is_followed(counter, nonce, token)
    local last = redis.call('HMGET', counter, 'granted', 'under', 'token')
    return last[1] and last[1] ~= nonce and (tonumber(last[2] or last[3]) or 0) > token
end

-- How a grant was lost that does not hold the key.
local function why_lost(counter, nonce, token, holds_now)
    if holds_now or is_followed(counter, nonce, token) then
        return 'superseded'
    end
    return redis.call('HGET', counter, 'last') == nonce and 'revoked' or 'expired'
end

-- Who holds the key, as others are told.
local function told_of(holder)
    local held = redis.call('HMGET', holder, 'nonce', 'lessee', 'token', 'shown')
    if not held[1] then
        return { 'free' }
    end
    return { 'held', held[2], held[4] or held[3], redis.call('PTTL', holder), held[1] }
end

-- Ends the grant that stands, and remembers its nonce. Whatever made the grant stand has kept the
-- counter for a ttl longer than is asked for: unless the server has lost that since, it is kept.
local function vacate(holder, counter, nonce, retention)
    redis.call('DEL', holder)
    local is_first = redis.call('HSET', counter, 'last', nonce) == 1
    if is_first then
        keep(counter, tonumber(retention))
    end
end

-- Nobody but `only` (nobody at all, without) may obtain the key for `length` milliseconds.
local function reserve(counter, length, only, retention)
    redis.call('HSET', counter, 'until', digits(now() / 1000 + length), 'only', only)
    keep(counter, math.max(retention, length))
end

-- Wakes who waits. A user without the right to publish can still release.
local function tell(publish, channel)
    redis.pcall(publish, channel, '')
end

