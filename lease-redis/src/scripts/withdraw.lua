-- Takes back one node's vote for a claim that got no majority. It may be asked again, so unlike
-- a release, this does not remember it.
-- KEYS: holder, counter. ARGV: nonce, the number of the round, the command that publishes, the
-- channel.
--
-- Only the vote of that round or an earlier one: this may come after the claim was made again, or
-- after it was granted by other nodes and extended on this one.
local held = redis.call('HMGET', KEYS[1], 'nonce', 'ask')
if held[1] ~= ARGV[1] or (tonumber(held[2]) or 0) > tonumber(ARGV[2]) then
    return 0
end
redis.call('DEL', KEYS[1])
-- As if it had never been: whoever had the key before may be given back to this node.
local before = redis.call('HMGET', KEYS[2], 'before', 'before_lessee', 'before_under')
if before[1] and before[1] ~= '' then
    redis.call('HSET', KEYS[2], 'granted', before[1], 'lessee', before[2], 'under', before[3])
else
    redis.call('HDEL', KEYS[2], 'granted', 'under')
end
redis.call('HDEL', KEYS[2], 'before', 'before_lessee', 'before_under')
tell(ARGV[3], ARGV[4])
return 1
