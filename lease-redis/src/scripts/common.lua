-- Precedes every script, without the functions that the script does not call. The keys of a script are
-- in one slot. A script reads the time once, since on some servers it advances while a script runs.
--
-- attributes: a hash that never expires. "." marks the record, "=name" is an attribute.
--
-- lease: a hash, kept for days after its last use. The server's expiry is for the whole hash, so that one
-- command reads a lease, and one writes it. Times in it are microseconds since 1970. Its fields:
--
--   granted       the nonce of the last grant
--   lessee        the lessee of the last grant
--   ends          the last grant is valid until this time; absent after a release
--   sequence      the number of the last grant's last heartbeat
--   token         the last token
--   last          the nonce of the last released grant; on one server set by the next grant
--   until, only   a reservation
--   evicted       the nonce of the grant that was evicted
--   deleted       the nonce of the grant that removed the record
--   kept          the earliest time at which the hash may expire
--
-- Further fields on a node of a quorum:
--
--   run           the server's run id when it gave the token
--   counted       this node's counter when it gave the last grant
--   under         the token that the holder uses, if known: this node's counter may be larger
--   round         the last round in which the claim was received, or a number above all rounds once the
--                 grant is confirmed
--   before, before_lessee, before_under
--                 granted, lessee and under of the previous grant
--
-- Numbers are passed to commands unformatted: Redis writes numbers below 2^53 with all digits.

-- Microseconds since 1970.
local moment
local function now()
    if not moment then
        local time = redis.call('TIME')
        moment = time[1] * 1000000 + time[2]
    end
    return moment
end

-- The round of a claim whose grant is confirmed: no withdrawal affects it.
local beyond_all_rounds = '9007199254740991'

-- The nonce and the token of the current grant, or nothing if it has expired or was released.
local function standing(lease)
    local held = redis.call('HMGET', lease, 'granted', 'token', 'ends')
    if (tonumber(held[3]) or 0) > now() then
        return held[1], held[2]
    end
end

-- Extends the expiry of the hash to at least `length` milliseconds from now. Adds a sixteenth, so that
-- not every call writes. Never shortens it: `kept` is the earlier expiry, for example of a reservation.
local function keep(lease, kept, length)
    if (tonumber(kept) or 0) < now() + length * 1000 then
        local longer = math.floor(length * 17 / 16)
        redis.call('HSET', lease, 'kept', now() + longer * 1000)
        redis.call('PEXPIRE', lease, longer)
    end
end

-- Raises the counter to `token`, unless it is larger already.
local function raise_counter(lease, token)
    if (tonumber(redis.call('HGET', lease, 'token')) or -1) < token then
        redis.call('HSET', lease, 'token', token)
    end
end

-- Larger than the last token, and not below the server's time: the server may have lost later tokens in
-- a restart or a failover.
--
-- The nodes of a quorum add 1, so that their tokens are equal. They use `time` only for a key without a
-- token, or if another `run` of the server granted the last one.
local function next_token(token, given_under, run, time)
    local following = (tonumber(token) or 0) + 1
    if token and run and given_under == run then
        return following
    end
    return math.max(following, time or now())
end

-- The attributes of a record. In a Cluster, a script gets only the lease. The attributes may be on another
-- node for a while, so the client reads them with a separate command.
local function attributes_at(attributes)
    return attributes and redis.call('HGETALL', attributes) or {}
end

-- Whether a record must be added to the index before a claim creates it. On one server, the script adds
-- it. In a Cluster, the index is in another slot: the client adds it, and leaves `entry` empty until then.
local function is_unlisted(attributes, index, entry)
    return not index and entry == '' and redis.call('HEXISTS', attributes, '.') == 0
end

-- Sets the attributes of a claim: names and values alternate from the argument at `first` on. Creates the
-- record if it does not exist, with `entry` in the index.
local function set_attributes(attributes, index, entry, first)
    if redis.call('HSET', attributes, '.', 1) == 1 and index then
        redis.call('ZADD', index, 0, entry)
    end
    for place = first, #ARGV, 2 do
        redis.call('HSET', attributes, '=' .. ARGV[place], ARGV[place + 1])
    end
end

-- The common time of a quorum's nodes: `proposed`, if it differs from this node's by less than a tenth of
-- a second. A server that has just started uses its own time: it may have lost tokens from that tenth of
-- a second.
local function common_time(proposed, uptime)
    if uptime > 1 and math.abs(proposed - now()) < 100000 then
        return proposed
    end
    return now()
end

-- The id of this run of the server, and its length in seconds. Negative if the clock was set back since.
local function server()
    local info = redis.call('INFO', 'server')
    local run, uptime = string.match(info, 'run_id:(%x+)'), string.match(info, 'uptime_in_seconds:(%-?%d+)')
    return run, tonumber(uptime) or 0
end

-- Whether another grant followed the grant of `nonce`. A node's counter may be larger than those of all
-- others, for example after withdrawn votes. So the token that the last grant's holder uses decides, if
-- the node knows it.
local function is_followed(lease, nonce, token)
    local last = redis.call('HMGET', lease, 'granted', 'under', 'token')
    return last[1] and last[1] ~= nonce and (tonumber(last[2] or last[3]) or 0) > token
end

-- Whether the grant of `nonce` was the last that was released on this server.
local function is_given_up(lease, nonce)
    local last = redis.call('HMGET', lease, 'last', 'granted', 'ends')
    return last[1] == nonce or (last[2] == nonce and not last[3])
end

-- The reason why a grant no longer holds the key.
local function why_lost(lease, nonce, token)
    if standing(lease) or is_followed(lease, nonce, token) then
        return 'superseded'
    end
    return is_given_up(lease, nonce) and 'revoked' or 'expired'
end

-- The holder of the key, in the format of replies to other claims.
local function report_holder(lease)
    local held = redis.call('HMGET', lease, 'granted', 'lessee', 'under', 'token', 'ends')
    local left = (tonumber(held[5]) or 0) - now()
    if left <= 0 then
        return { 'free' }
    end
    return { 'held', held[2], held[3] or held[4], math.ceil(left / 1000), held[1] }
end

-- Ends the current grant, and stores its nonce. The hash need not be extended: the last claim or heartbeat
-- extended it by the retention and a ttl. HDEL comes first: a server at its maxmemory refuses HSET unless
-- the script has written before.
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

