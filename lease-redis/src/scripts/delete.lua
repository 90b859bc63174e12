-- Removes a record under a grant that stands. The counter stays, with its token and nonce.
-- KEYS: holder, counter, attributes. ARGV: nonce, token, retention (ms), the command that
-- publishes, the channel.
local held = redis.call('HMGET', KEYS[1], 'nonce', 'token')
if held[1] ~= ARGV[1] or held[2] ~= ARGV[2] then
    -- Applied before, and the reply was lost?
    if redis.call('HGET', KEYS[2], 'deleted') == ARGV[1] then
        return 'applied'
    end
    return why_lost(KEYS[2], ARGV[1], tonumber(ARGV[2]), held[1])
end
vacate(KEYS[1], KEYS[2], ARGV[1], ARGV[3])
redis.call('DEL', KEYS[3])
redis.call('HSET', KEYS[2], 'deleted', ARGV[1])
tell(ARGV[4], ARGV[5])
return 'applied'
