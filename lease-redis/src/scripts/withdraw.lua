-- Withdraws one node's vote for a claim that got no majority. Unlike a release, this script does not store
-- the nonce, since the claim may be repeated.
-- KEYS: lease. ARGV: nonce, the number of the round, the command that publishes, the channel.
--
-- Withdraws only a vote of that round or an earlier one. The request may arrive after the claim was
-- repeated, or after other nodes granted it and a heartbeat extended the grant on this node.
local lease = KEYS[1]
local past = redis.call('HMGET', lease, 'round', 'before', 'before_lessee', 'before_under')
if standing(lease) ~= ARGV[1] or (tonumber(past[1]) or 0) > tonumber(ARGV[2]) then
    return 0
end
-- HDEL comes first: a server at its maxmemory refuses HSET unless the script has written before.
redis.call('HDEL', lease, 'before', 'before_lessee', 'before_under')
-- The vote leaves no trace: the former holder has not released the key, and its grant may be restored on
-- this node.
redis.call('HSET', lease, 'ends', 0)
if past[2] and past[2] ~= '' then
    redis.call('HSET', lease, 'granted', past[2], 'lessee', past[3], 'under', past[4])
else
    redis.call('HDEL', lease, 'granted', 'under')
end
notify(ARGV[3], ARGV[4])
return 1
