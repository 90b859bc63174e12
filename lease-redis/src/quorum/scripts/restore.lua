-- Restores a grant on a node that has forgotten it, while other nodes still have it.
-- KEYS: lock, counter. ARGV: the text of the lock without the former bound, the token, ttl (ms).
-- Returns 1 if the grant is restored.
--
-- Refused if a later grant or a release followed. The counter does not change: it may be that of a node
-- without memory, whose time is larger. The client sends no such request to a node that has just restarted:
-- the node's vote from before the restart may still count for another claim.
local lock, counter, text, token, ttl = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]
local _, bound = numbers_in(call('GET', counter))
if exceeds(bound, token) then
    return 0
end
return call('SET', lock, text .. ' ' .. bound, 'PX', ttl, 'NX') and 1 or 0
