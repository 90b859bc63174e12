-- Votes on a claim that adopts a grant. The vote takes the lock from the grant.
-- KEYS: lock, counter. ARGV: retention (ms); nonce of the grant, and its token plus 1; the text of the lock
-- without the former bound, the proposed token, ttl (ms).
-- Returns an answer as the script claim does, or 'free' if nobody holds the key.
local lock, counter = KEYS[1], KEYS[2]
local retention, handed, above = ARGV[1], ARGV[2], ARGV[3]
local text, token, ttl = ARGV[4], ARGV[5], ARGV[6]

local held = call('GET', lock)
if not held then
    return 'free'
end
if sub(held, 1, 33) == sub(text, 1, 33) then
    return vote_again(lock, counter, held, text, token, ttl, retention)
end
-- An evicted grant is not adopted. A larger token belongs to a later grant of the same claim.
if sub(held, 33, 33) ~= 'h' or not holds(held, handed, above) then
    return report(lock, held)
end
local count, bound, time = numbers_in(call('GET', counter))
if not exceeds(token, count) then
    return outbid(count, time)
end
-- PEXPIRE comes first: a server at its maxmemory refuses SET unless the script has written before. The
-- lease is held already, so it must be kept.
call('PEXPIRE', lock, ttl)
call('SET', lock, sub(text, 1, 33) .. sub(held, 34, 34) .. sub(text, 35) .. ' ' .. bound, 'PX', ttl)
call('SET', counter, token, 'PX', retention)
return time and tonumber(time) or 0
