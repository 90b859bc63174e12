-- Refuses the heartbeats of a grant from now on, and lets the grant expire.
-- KEYS: lock. ARGV: the nonce of the grant, or its token. Returns 1 if this was the current grant.
local lock, named = KEYS[1], ARGV[1]
local text = call('GET', lock)
if not text or sub(text, 33, 33) == 'r' then
    return 0
end
if sub(text, 1, 32) ~= named and token_in(text) ~= named then
    return 0
end
call('SETRANGE', lock, 32, 'x')
return 1
