-- Removes a record under a grant that stands. The counter stays, with its token and nonce.
-- KEYS: holder, counter, attributes. ARGV: nonce, token, retention (ms), the command that
-- publishes, the channel.
local holds_now = redis.call('HGET', KEYS[1], 'nonce')
if holds_now ~= ARGV[1] then
    return why_lost(KEYS[2], ARGV[1], tonumber(ARGV[2]), holds_now)
end
vacate(KEYS[1], KEYS[2], ARGV[1], ARGV[3])
redis.call('DEL', KEYS[3])
tell(ARGV[4], ARGV[5])
return 'applied'
