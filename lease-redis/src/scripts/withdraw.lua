-- Takes back one node's vote for a claim that got no majority. It may be asked again, so unlike
-- a release, this does not remember it.
-- KEYS: holder, counter. ARGV: nonce, the command that publishes, the channel.
if redis.call('HGET', KEYS[1], 'nonce') ~= ARGV[1] then
    return 0
end
redis.call('DEL', KEYS[1])
redis.call('HDEL', KEYS[2], 'granted')
tell(ARGV[2], ARGV[3])
return 1
