-- Restores a grant on a node that has forgotten it, while other nodes still have it.
-- KEYS: the key. ARGV: retention (ms); the nonce, the token, the number of the heartbeat, the lessee, and
-- the ttl (ms). Returns 1 if the grant is restored.
--
-- Refuses the grant if a later grant or a release followed. Keeps the counter: it may belong to a node
-- without memory, whose time is larger. The client sends no such request to a node that has just restarted:
-- the node's vote from before the restart may still count for another claim.
local key, time = KEYS[1], now()
local retention, nonce, token, beat, lessee, ttl = unpack(ARGV)
local text = call('GET', key)
if is_held(text, time) then
    return 0
end
local count, bound = numbers_in(text)
if bound > token then
    return 0
end
-- Marks the lock, because a client that marked the forgotten lock may still wait.
local head = 'hw' .. nonce .. token .. count .. bound
call('SET', key, head .. beat .. ' ' .. lessee .. bound .. end_of(time, ttl), 'PX', retention)
return 1
