-- Withdraws one node's vote for a claim that got no majority. `token` is the last proposal, and `above` is
-- the proposal plus 1. Returns 1 if the vote was withdrawn.
--
-- Withdraws only a vote for that proposal or a smaller one. The request may arrive after a repetition of the
-- claim, or after a heartbeat wrote the larger token of a grant.
local key = KEYS[1]
local retention, nonce, token, above = unpack(ARGV)
local text = call('GET', key)
if not is_held(text, now()) or not holds(text, nonce, above) then
    return 0
end
local count, bound = numbers_in(text)
if sub(text, 35, 50) == token then
    -- The bound from before the vote applies again, so that a heartbeat may restore the earlier grant.
    bound = sub(text, -32, -17)
end
if count == NONE then
    call('DEL', key)
else
    -- PEXPIRE counts as a write, so SET succeeds on a server at its maxmemory.
    call('PEXPIRE', key, retention)
    call('SET', key, free_text(count, bound), 'KEEPTTL')
end
notify(key, text)
return 1
