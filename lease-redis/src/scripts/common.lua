-- Precedes every script, without the functions that the script does not call. All keys of a script are in one
-- slot. A script gets `tokens`, the queue and `index` only on one logical server. `publish` is the command
-- that publishes on `channel`. Ttls, lengths and the retention are in milliseconds.
--
-- The key of a lease has one of two forms.
--
-- A *lock* is a string, on one logical server. It exists while the key is held or reserved. The server's
-- expiry ends the lock, so nothing remains of a key that was used once. Its text:
--
--   32 characters   the nonce of the grant, or of the grant that was released with a reservation
--   1               h: held, x: evicted, r: reserved for no lessee
--   1               the mark: w: a client watches the key, q: claims may be queued for it, b: both, -: neither
--   the rest        the number of the request that was granted, the number of the last heartbeat, the
--                   token or 0 if no heartbeat has written it, and the lessee, separated by spaces
--
-- A *record* is a hash: each key with attributes, and in a Cluster each key. Without attributes, the hash
-- expires days after its last use. With attributes, it never expires. Times are microseconds since 1970. Its
-- fields:
--
--   granted       the nonce of the last grant
--   request       the number of the request that was granted
--   lessee        the lessee of the last grant
--   ends          the last grant is valid until this time; absent after a release
--   sequence      the number of the last grant's last heartbeat
--   token         the last token
--   last          the nonce of the last released grant; set by the next grant
--   until, only   a reservation
--   evicted       the nonce of the grant that was evicted
--   deleted       the nonce of the grant that removed the record
--   kept          the earliest time at which the hash may expire
--   waits         present if a client waits for the key
--   parent        the key of the session of a *child*: a lease without an end. Its `ends` is 9007199254740991
--   parent_token  the token of that session
--   lasts         present if the key was claimed under a session. The hash lasts this long (ms) after its lease,
--                 and does not become a lock before
--
-- refused: a string on one logical server, with a token that is larger than that of the last lock. A script
-- writes it when a lock refuses a claim under a session. While the key has no token of its own, this is its
-- token. So a late copy of the claim, which has seen the key without a token, is refused again.
--
-- queue: a list of nonces, in the order of arrival, on one logical server. waiters: a hash with, for each
-- nonce of the queue, the largest number of its requests, the time of its last request (ms since 1970), its
-- ttl, the channel of its client, and its lessee. Both keys expire a few ttls after the last request. A place
-- that was not renewed for its ttl counts as given up. The two names are the lease's name plus `:queue` or
-- `:waiters`.
--
-- attributes: a hash that never expires. "." marks the record, "=name" is an attribute.
--
-- tokens: a stream with one short entry, on one logical server: the source of tokens. Its last id is at
-- least as large as every token that the server gave.
--
-- Numbers are passed to commands unformatted: Redis writes numbers below 2^53 with all digits.

-- A script reads the time once, because on some servers the time advances during a script.
local moment
local function now()
    if not moment then
        local time = redis.call('TIME')
        moment = time[1] * 1000000 + time[2]
    end
    return moment
end

-- Returns a token that exceeds `last` and all tokens of this server, and is not below the server's time. The
-- server may have lost later tokens in a restart or a failover.
--
-- An id of the stream is a time in milliseconds and a number. The token uses the next millisecond if the
-- number is 1000, which happens only while the clock is behind the last id. It also does if the stream does
-- not exist, since the server may have been flushed within this millisecond.
local function take_token(tokens, last)
    local id = redis.call('XADD', tokens, 'NOMKSTREAM', 'MAXLEN', '~', 1, '*', 't', 1)
    local millis, number = math.floor(now() / 1000), 1000
    if id then
        millis, number = string.match(id, '(%d+)-(%d+)')
        millis, number = tonumber(millis), tonumber(number)
    end
    last = tonumber(last) or 0
    local token = millis * 1000 + number
    if number < 1000 and token > last then
        return token
    end
    millis = math.max(millis, math.floor(last / 1000)) + 1
    redis.call('XADD', tokens, 'MAXLEN', '~', 1, string.format('%.0f-0', millis), 't', 1)
    return millis * 1000
end

local function next_token(tokens, last)
    if tokens then
        return take_token(tokens, last)
    end
    return math.max((tonumber(last) or 0) + 1, now())
end

local function lock_at(lease)
    local text = redis.pcall('GET', lease)
    if type(text) ~= 'string' then
        return nil
    end
    if not string.find(text, '^[hxr][wqb%-]%d', 33) then
        error('WRONGTYPE the text is no lock')
    end
    return text
end

local function parts_of(text)
    return string.match(text, '^(%d+) (%d+) (%d+) (.*)$', 35)
end

-- PEXPIRE counts as a write and needs no memory. So SET succeeds after it on a server at its maxmemory.
local function write_lock(lease, text, ttl)
    if redis.pcall('SET', lease, text, 'PX', ttl).err then
        redis.call('PEXPIRE', lease, ttl)
        redis.call('SET', lease, text, 'PX', ttl)
    end
end

-- The format is that of replies to claims. A reserved key has a former holder.
local function report_lock(lease, text)
    local _, _, token, lessee = parts_of(text)
    local id = string.sub(text, 33, 33) == 'r' and '' or string.sub(text, 1, 32)
    return { 'held', lessee, token, redis.call('PTTL', lease), id }
end

local function why_lock_lost(text, nonce)
    return string.sub(text, 1, 32) == nonce and string.sub(text, 33, 33) ~= 'h' and 'revoked' or 'superseded'
end

-- A promoted replica may still have the waiter in its queue, and grant the request again, with a larger
-- token. The token 0 is unknown.
local function is_grant(text, request, token)
    local granted, _, last = parts_of(text)
    return granted == request and tonumber(last) <= tonumber(token)
end

-- An evicted grant holds the lock until it expires, because its holder may still write.
local function holds_lock(text, nonce, request, token)
    return string.sub(text, 1, 32) == nonce and string.sub(text, 33, 33) ~= 'r' and is_grant(text, request, token)
end

-- If the server lacks memory for the mark, the client polls.
local function add_mark(lease, text, mark)
    local found = string.sub(text, 34, 34)
    if found ~= mark and found ~= 'b' then
        redis.pcall('SETRANGE', lease, 33, found == '-' and mark or 'b')
    end
end

local function is_watched(text)
    return string.find(text, '^[wb]', 34) ~= nil
end

local function has_queue(text)
    return string.find(text, '^[qb]', 34) ~= nil
end

-- Returns the number of clients that receive messages of this channel from this server. Without the right to
-- count, the script fails.
local function subscribers(channel)
    return redis.call('PUBSUB', 'NUMSUB', channel)[2]
end

-- Grants the key to the first claim of its queue that was renewed within its ttl, as a lock with `mark`.
-- Returns whether it granted the key. The claim `present` gets the grant as the reply of the script. Any
-- other grant is published: nonce, request number, token and lease. A claim without a subscriber is skipped.
-- Its message is not published: Redis also sends messages to replicas, which may deliver them.
local function settle(lease, tokens, mark, present)
    local queue, waiters = lease .. ':queue', lease .. ':waiters'
    local nonce = redis.call('LPOP', queue)
    while nonce do
        local place = redis.call('HGET', waiters, nonce)
        if place then
            redis.call('HDEL', waiters, nonce)
            local request, renewed, ttl, channel, lessee = string.match(place, '^(%d+) (%d+) (%d+) (%S+) (.*)$')
            if now() < (renewed + ttl) * 1000 and (nonce == present or subscribers(channel) > 0) then
                local token = take_token(tokens)
                write_lock(lease, string.format('%sh%s%s 0 %.0f %s', nonce, mark, request, token, lessee), ttl)
                if nonce ~= present then
                    redis.pcall('PUBLISH', channel, string.format('%s %s %.0f %s', nonce, request, token, lease))
                end
                return true
            end
        end
        nonce = redis.call('LPOP', queue)
    end
    return false
end

local function leave_queue(lease, nonce)
    if redis.call('HDEL', lease .. ':waiters', nonce) == 1 then
        -- A nonce without a place is skipped.
        redis.pcall('LREM', lease .. ':queue', 1, nonce)
    end
end

-- A queue lasts for two to three ttls of a claim. The function never shortens a longer expiry.
local function keep_queue(queue, waiters, ttl)
    if redis.call('PTTL', queue) < 2 * ttl then
        redis.call('PEXPIRE', queue, 3 * ttl)
    end
    if redis.call('PTTL', waiters) < 2 * ttl then
        redis.call('PEXPIRE', waiters, 3 * ttl)
    end
end

-- The key becomes a record. Waiters that are notified query the key at once.
local function dissolve_queue(lease)
    local queue, waiters = lease .. ':queue', lease .. ':waiters'
    for _, nonce in ipairs(redis.pcall('LRANGE', queue, 0, -1)) do
        local place = redis.call('HGET', waiters, nonce)
        local channel = place and string.match(place, '^%d+ %d+ %d+ (%S+)')
        if channel then
            redis.pcall('PUBLISH', channel, nonce .. ' 0 0 ' .. lease)
        end
    end
    redis.call('DEL', queue)
    redis.call('DEL', waiters)
end

local function standing(lease)
    local held = redis.call('HMGET', lease, 'granted', 'token', 'ends')
    if (tonumber(held[3]) or 0) > now() then
        return held[1], held[2]
    end
end

-- Keeps the hash for at least `length`. Adds a sixteenth, so that not every call writes. Never shortens the
-- earlier expiry `kept`, because a reservation may need it.
local function keep(lease, kept, length)
    if (tonumber(kept) or 0) < now() + length * 1000 then
        local longer = math.floor(length * 17 / 16)
        redis.call('HSET', lease, 'kept', now() + longer * 1000)
        redis.call('PEXPIRE', lease, longer)
    end
end

-- The hash shows that the key is a record. `kept` is the earlier expiry.
local function keep_for_ever(lease, kept)
    if kept ~= '9007199254740991' then
        redis.call('HSET', lease, 'kept', '9007199254740991')
        redis.call('PERSIST', lease)
    end
end

local function keep_grant(lease, attributes, tokens, kept, length)
    if tokens and redis.call('EXISTS', attributes) == 1 then
        keep_for_ever(lease, kept)
    else
        keep(lease, kept, length)
    end
end

-- No time ends a grant under a session, and its hash does not expire.
local function put_under(lease, parent, parent_token, kept, retention)
    redis.call('HSET', lease, 'ends', '9007199254740991', 'parent', parent, 'parent_token', parent_token,
        'lasts', retention)
    keep_for_ever(lease, kept)
end

-- Replaces a lock with this text by a hash. `token` is the token of its grant.
local function record_of_lock(lease, text, token, retention)
    local request, beat, _, lessee = parts_of(text)
    local nonce, left = string.sub(text, 1, 32), redis.call('PTTL', lease)
    redis.call('DEL', lease)
    redis.call('HSET', lease, 'granted', nonce, 'request', request, 'lessee', lessee, 'sequence', beat,
        'ends', now() + left * 1000, 'token', token, 'last', '')
    if string.sub(text, 33, 33) == 'x' then
        redis.call('HSET', lease, 'evicted', nonce)
    end
    if is_watched(text) then
        redis.call('HSET', lease, 'waits', 1)
    end
    if has_queue(text) then
        dissolve_queue(lease)
    end
    keep(lease, nil, retention + left)
end

-- In a Cluster, a script gets only the lease. The client reads the attributes with a separate command,
-- because they may be on another node for a while.
local function attributes_at(attributes)
    return attributes and redis.call('HGETALL', attributes) or {}
end

-- On one server, the script adds the record to the index. In a Cluster, the index is in another slot, so the
-- client adds the record. `entry` is empty until then.
local function is_unlisted(attributes, index, entry)
    return not index and entry == '' and redis.call('HEXISTS', attributes, '.') == 0
end

-- Names and values alternate from the argument at `first` on. A new record gets `entry` in the index.
local function set_attributes(attributes, index, entry, first)
    if redis.call('HSET', attributes, '.', 1) == 1 and index then
        redis.call('ZADD', index, 0, entry)
    end
    for place = first, #ARGV, 2 do
        redis.call('HSET', attributes, '=' .. ARGV[place], ARGV[place + 1])
    end
end

local function is_given_up(lease, nonce)
    local last = redis.call('HMGET', lease, 'last', 'granted', 'ends')
    return last[1] == nonce or (last[2] == nonce and not last[3])
end

-- The token is a text, and is empty if the key has no token. `last` is the token of the key's record.
local function last_token(lease, tokens, last)
    return last or tokens and redis.call('GET', lease .. ':refused') or ''
end

local function why_lost(lease, nonce, token)
    local last = redis.call('HMGET', lease, 'granted', 'token')
    if standing(lease) or (last[1] and last[1] ~= nonce and (tonumber(last[2]) or 0) > tonumber(token)) then
        return 'superseded'
    end
    return is_given_up(lease, nonce) and 'revoked' or 'expired'
end

-- The format is that of replies to claims.
local function report_holder(lease)
    local held = redis.call('HMGET', lease, 'granted', 'lessee', 'token', 'ends', 'parent', 'parent_token')
    local left = (tonumber(held[4]) or 0) - now()
    if left <= 0 then
        return { 'free' }
    end
    return { 'held', held[2], held[3], math.ceil(left / 1000), held[1], held[5], held[6] }
end

-- A reserved key has no holder.
local function holder_at(lease)
    local text = lock_at(lease)
    if not text then
        return report_holder(lease)
    end
    return string.sub(text, 33, 33) == 'r' and { 'free' } or report_lock(lease, text)
end

-- Takes the grant out of its session. The hash of a child then expires again, unless it has attributes.
-- Returns whether the grant had an end.
local function remove_end(lease)
    local removed = redis.call('HDEL', lease, 'ends', 'parent', 'parent_token')
    -- In a Cluster, each hash expires. While a slot moves, the attributes may be on another node.
    if removed > 1 and redis.pcall('EXISTS', lease .. ':attributes') ~= 1 then
        local length = redis.call('HGET', lease, 'lasts')
        redis.call('HSET', lease, 'kept', now() + length * 1000)
        redis.call('PEXPIRE', lease, length)
    end
    return removed > 0
end

-- The last claim or heartbeat has extended the hash by the retention and a ttl. HDEL counts as a write, so
-- HSET succeeds on a server at its maxmemory.
local function vacate(lease, nonce)
    remove_end(lease)
    redis.call('HSET', lease, 'last', nonce)
end

-- Reserves a key for the lessee `only`, or for no lessee if `only` is empty.
local function reserve(lease, length, only, retention)
    redis.call('HSET', lease, 'until', now() + length * 1000, 'only', only)
    keep(lease, redis.call('HGET', lease, 'kept'), math.max(retention, length))
end

-- A user without the right to publish can still release.
local function notify_waiters(text, publish, channel)
    if is_watched(text) then
        redis.pcall(publish, channel, '')
    end
end

-- A release frees the key even if its user may not use the queue.
local function grants_next(lease, tokens, mark)
    local done, granted = pcall(function()
        return settle(lease, tokens, mark)
    end)
    return done and granted
end

local function end_lock(lease, text, tokens, publish, channel)
    if has_queue(text) and grants_next(lease, tokens, string.sub(text, 34, 34)) then
        return
    end
    redis.call('DEL', lease)
    notify_waiters(text, publish, channel)
end

local function notify(lease, publish, channel)
    if redis.call('HDEL', lease, 'waits') == 1 then
        redis.pcall(publish, channel, '')
    end
end
