-- Withdraws one node's vote for a claim that got no majority.
-- KEYS: lock, counter. ARGV: nonce; the last proposal, and the number above it. Returns 1 if the vote was
-- withdrawn.
--
-- Only a vote for that proposal or a smaller one: the request may arrive after the claim was repeated, or
-- after other nodes granted it and a heartbeat wrote a larger token.
local lock, counter, nonce, token, above = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]
local text = call('GET', lock)
if not text or not holds(text, nonce, above) then
    return 0
end
call('DEL', lock)
local numbers = call('GET', counter)
if numbers and token_in(text) == token then
    -- The vote leaves no trace: the grant before it has not been released, and may be restored here.
    local count, former = match(numbers, '^%d+'), match(text, '%d+$')
    call('SET', counter, count == former and count or count .. ' ' .. former, 'KEEPTTL')
end
notify(lock, text)
return 1
