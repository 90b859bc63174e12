-- Votes on a claim that adopts a grant. The vote takes the lock from the grant. `above` is the grant's token
-- plus 1. `text` is the new lock without the former bound and the end.
-- Returns an answer of the script claim, or 'free' if the key has no holder.
local key, time = KEYS[1], now()
local retention, handed, above, text, ttl = unpack(ARGV)

local held = call('GET', key)
if not is_held(held, time) then
    return 'free'
end
if sub(held, 1, 1) == 'h' and sub(held, 3, 34) == sub(text, 3, 34) then
    return vote_again(key, held, text, time, ttl, retention)
end
-- Refuses an evicted grant, and a larger token, which belongs to a later grant of the same claim.
if sub(held, 1, 1) ~= 'h' or not holds(held, handed, above) then
    return report(held, time)
end
local count, bound = numbers_in(held)
if sub(text, 35, 50) <= floor_of(count, time) then
    return outbid(count, time)
end
-- PEXPIRE counts as a write, so SET succeeds on a server at its maxmemory. The lease is already held, so this
-- script must succeed even there.
call('PEXPIRE', key, retention)
call('SET', key, 'h' .. sub(held, 2, 2) .. sub(text, 3) .. bound .. end_of(time, ttl), 'PX', retention)
return count == NONE and time or 0
