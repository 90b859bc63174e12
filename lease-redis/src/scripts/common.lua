-- In front of every script, but for functions that it does not call. Each script may assume that its
-- keys are in one slot, and that time stands still while it runs: it is read once, since not all
-- servers stop it for a script.
--
-- lease       hash, kept for days after its last use. Of the last grant: granted (its nonce),
--             lessee, ends (microseconds since 1970; absent once it was given up), sequence (the number
--             of its last heartbeat). It stands until it ends: the server's own expiry is for the
--             hash, so that one command reads a lease, and one writes it.
--             Of all: token (the last one), last (the nonce of the last release; on one server
--             from the next grant on), until and only (a reservation), evicted (the nonce of the grant
--             that was evicted), deleted (the nonce that removed the record), kept (until when the
--             hash is there, at least).
--             On a node of a quorum also run (of the server, when the token was given); of the last
--             grant: counted (what this node counted to for it), under (the token that it is known
--             to be under: this node may have counted further), round (the number of the round in
--             which the claim was received last, or one beyond all rounds, once it is known to be
--             granted); before, before_lessee and before_under (granted, lessee and under, before
--             the last grant)
-- attributes  hash, never expires: "." marks the record, "=name" is an attribute
--
-- Numbers are given to commands as they are: Redis writes those below 2^53 with all their digits.

-- Microseconds since 1970.
local moment
local function now()
    if not moment then
        local time = redis.call('TIME')
        moment = time[1] * 1000000 + time[2]
    end
    return moment
end

-- The round of a claim that is known to be granted: no withdrawal of a round affects it.
local beyond_all_rounds = '9007199254740991'

-- The nonce and the token of the grant that stands; nothing, if none does.
local function standing(lease)
    local held = redis.call('HMGET', lease, 'granted', 'token', 'ends')
    if (tonumber(held[3]) or 0) > now() then
        return held[1], held[2]
    end
end

-- Keeps a lease that is `kept` already for at least `length` milliseconds from now; a little longer,
-- so that this need not be written each time. A reservation on it may last longer yet.
local function keep(lease, kept, length)
    if (tonumber(kept) or 0) < now() + length * 1000 then
        local longer = math.floor(length * 17 / 16)
        redis.call('HSET', lease, 'kept', now() + longer * 1000)
        redis.call('PEXPIRE', lease, longer)
    end
end

-- The larger of what is there and `token`: counters never go back.
local function raise_counter(lease, token)
    if (tonumber(redis.call('HGET', lease, 'token')) or -1) < token then
        redis.call('HSET', lease, 'token', token)
    end
end

-- More than the last token, and no less than the server's time: it may have lost later ones, when
-- it restarted, or when another that had them stood in for it.
--
-- The nodes of a quorum count in ones, so that they agree: there, the `time` is only looked at for a
-- key without a token, and by another `run` of the server than the one that gave the last.
local function next_token(token, given_under, run, time)
    local following = (tonumber(token) or 0) + 1
    if token and run and given_under == run then
        return following
    end
    return math.max(following, time or now())
end

-- What is on a record. In a Cluster, a script has the lease alone: the attributes may be on another
-- node for a while, and are asked for apart.
local function attributes_at(attributes)
    return attributes and redis.call('HGETALL', attributes) or {}
end

-- Whether a record has to be put into the index before a claim makes it. On one server, the script that
-- makes it does that; in a Cluster, the index is in another slot, and `entry` is empty until it is done.
local function is_unlisted(attributes, index, entry)
    return not index and entry == '' and redis.call('HEXISTS', attributes, '.') == 0
end

-- Sets the attributes of a claim, names and values in turn from the argument at `first` on. The record
-- lasts from then on, and is in the index as `entry`.
local function set_attributes(attributes, index, entry, first)
    if redis.call('HSET', attributes, '.', 1) == 1 and index then
        redis.call('ZADD', index, 0, entry)
    end
    for place = first, #ARGV, 2 do
        redis.call('HSET', attributes, '=' .. ARGV[place], ARGV[place + 1])
    end
end

-- What time it is, as the nodes of a quorum agree on it: as `proposed`, if that is within a tenth of a
-- second of their own. A server that has just started takes its own: what it has forgotten may be as
-- near as that.
local function common_time(proposed, uptime)
    if uptime > 1 and math.abs(proposed - now()) < 100000 then
        return proposed
    end
    return now()
end

-- This run of the server, and how many seconds it has lasted: below zero, if its clock was set
-- back since.
local function server()
    local info = redis.call('INFO', 'server')
    local run, uptime = string.match(info, 'run_id:(%x+)'), string.match(info, 'uptime_in_seconds:(%-?%d+)')
    return run, tonumber(uptime) or 0
end

-- Whether another grant came after the one of `nonce`. A node of a quorum may have counted
-- further than all others, for that grant or for one before it, or for votes that were withdrawn:
-- so what counts is the token that its last grant is known to be under, where it knows that.
local function is_followed(lease, nonce, token)
    local last = redis.call('HMGET', lease, 'granted', 'under', 'token')
    return last[1] and last[1] ~= nonce and (tonumber(last[2] or last[3]) or 0) > token
end

-- Whether the grant of `nonce` was the last to be given up, here.
local function is_given_up(lease, nonce)
    local last = redis.call('HMGET', lease, 'last', 'granted', 'ends')
    return last[1] == nonce or (last[2] == nonce and not last[3])
end

-- How a grant was lost that does not hold the key.
local function why_lost(lease, nonce, token)
    if standing(lease) or is_followed(lease, nonce, token) then
        return 'superseded'
    end
    return is_given_up(lease, nonce) and 'revoked' or 'expired'
end

-- The holder of the key, as it is reported to other claims.
local function report_holder(lease)
    local held = redis.call('HMGET', lease, 'granted', 'lessee', 'under', 'token', 'ends')
    local left = (tonumber(held[5]) or 0) - now()
    if left <= 0 then
        return { 'free' }
    end
    return { 'held', held[2], held[3] or held[4], math.ceil(left / 1000), held[1] }
end

-- Ends the grant that stands, and remembers its nonce. Whatever made it stand has kept it for a ttl
-- longer than is asked for. What needs no memory comes first: a server without any refuses the rest,
-- unless the script has written before.
local function vacate(lease, nonce)
    redis.call('HDEL', lease, 'ends')
    redis.call('HSET', lease, 'last', nonce)
end

-- For `length` milliseconds, only the lessee `only` may obtain the key. If `only` is empty, no lessee may.
local function reserve(lease, length, only, retention)
    redis.call('HSET', lease, 'until', now() + length * 1000, 'only', only)
    keep(lease, redis.call('HGET', lease, 'kept'), math.max(retention, length))
end

-- Wakes the waiters. A user without the right to publish can still release.
local function notify(publish, channel)
    redis.pcall(publish, channel, '')
end

