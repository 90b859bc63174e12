-- Withdraws one node's vote for a claim that got no majority.
-- KEYS: the key. ARGV: retention (ms); nonce; the last proposal, and the proposal plus 1. Returns 1 if the
-- vote was withdrawn.
--
-- Withdraws only a vote for that proposal or a smaller one: the request may arrive after the claim was
-- repeated, or after other nodes granted it and a heartbeat wrote a larger token.
local key = KEYS[1]
local retention, nonce, token, above = unpack(ARGV)
local text = call('GET', key)
if not is_held(text, now()) or not holds(text, nonce, above) then
    return 0
end
local count, bound = numbers_in(text)
if sub(text, 35, 50) == token then
    -- The bound from before the vote applies again: a heartbeat may restore the earlier grant on this node.
    bound = sub(text, -32, -17)
end
if count == NONE then
    call('DEL', key)
else
    -- PEXPIRE comes first: a server at its maxmemory refuses SET unless the script has written before.
    call('PEXPIRE', key, retention)
    call('SET', key, free_text(count, bound), 'KEEPTTL')
end
notify(key, text)
return 1
