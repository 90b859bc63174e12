-- Restores a grant on a node that has forgotten it, while other nodes still have it. Returns 1 if the grant
-- is restored.
--
-- Refuses the grant if a later grant or a release followed. A node without a counter gets none, because the
-- node's time is a larger floor for proposals. A client sends no restore to a node that has just restarted.
-- The node's vote from before the restart may still count for another claim.
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
