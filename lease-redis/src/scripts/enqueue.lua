-- Joins the queue of a key, or renews a place in it. If the key is free, grants it to the first waiter.
-- Returns the grant in the format of replies to claims; {'queued', number of waiters ahead, time left (ms),
-- number of subscribers of the client's channel}; 'gone' if the claim has no place and may not join; or 'race'
-- if the key is a record, which has no queue.
local lease, queue, waiters, attributes, tokens = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local nonce, request, lessee, ttl, channel = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local joins = ARGV[6] == '1'
-- Counts first: without the right to count, the script fails before it writes.
local receivers = subscribers(channel)

local function write_place(number)
    redis.call('HSET', waiters, nonce, string.format('%s %.0f %s %s %s', number, now() / 1000, ttl, channel, lessee))
end

-- Renews the place first, because the script may grant a free key to this waiter.
local place = redis.call('HGET', waiters, nonce)
if place then
    local last = string.match(place, '^%d+')
    write_place(tonumber(last) > tonumber(request) and last or request)
end

local text = lock_at(lease)
if not text then
    if redis.call('EXISTS', lease) == 1 or redis.call('EXISTS', attributes) == 1 then
        -- An earlier claim of this nonce may hold the record, and its reply may be lost.
        local granted, token = standing(lease)
        if granted == nonce then
            return { 'granted', token, attributes_at(attributes), redis.call('HGET', lease, 'request') or '0' }
        end
        return 'race'
    end
    if settle(lease, tokens, 'q', nonce) then
        text = redis.call('GET', lease)
    elseif joins then
        local token = take_token(tokens)
        write_lock(lease, string.format('%sh-%s 0 %.0f %s', nonce, request, token, lessee), ttl)
        return { 'granted', token, {}, request }
    else
        return 'gone'
    end
end
if string.sub(text, 1, 33) == nonce .. 'h' then
    -- A late plain claim of this nonce got the key while the nonce was queued.
    if place then
        leave_queue(lease, nonce)
    end
    local granted, _, token = parts_of(text)
    -- A plain claim writes the token 0 into the lock. The token of the claim itself was never used.
    return { 'granted', token == '0' and take_token(tokens) or token, {}, granted }
end
if not place then
    if not joins then
        return 'gone'
    end
    redis.call('RPUSH', queue, nonce)
    write_place(request)
end
keep_queue(queue, waiters, tonumber(ttl))
add_mark(lease, text, 'q')
-- Each renewal searches the queue.
return { 'queued', redis.call('LPOS', queue, nonce, 'MAXLEN', 1000), redis.call('PTTL', lease), receivers }
