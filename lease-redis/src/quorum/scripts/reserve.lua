-- Releases the key of a grant, and reserves it for nobody. Not on a node that does not vote: the key may be
-- held by a grant that the node has forgotten.
-- KEYS: lock, counter. ARGV: retention (ms), nonce of the grant, its token plus 1, its token, its lessee,
-- length (ms). Returns 1 if the key is reserved.
--
-- A reservation needs a majority, so nodes without the grant write it too, unless a later grant followed.
local lock, counter = KEYS[1], KEYS[2]
local retention, nonce, least, token, lessee, length = unpack(ARGV)

local text = call('GET', lock)
local _, bound = numbers_in(call('GET', counter))
local held = text and holds(text, nonce, least)
-- PEXPIRE comes first: a server at its maxmemory refuses SET unless the script has written before.
call('PEXPIRE', counter, retention)
raise(counter, least, retention, lock, not held and text)
if not held and (text or not exceeds(least, bound)) then
    return 0
end
local mark = held and sub(text, 34, 34) or '-'
call('SET', lock, nonce .. 'r' .. mark .. token .. ' 0 ' .. lessee .. ' 0', 'PX', length)
if held then
    notify(lock, text)
end
return 1
