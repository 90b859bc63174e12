-- Frees a key that its grant still holds.
-- KEYS: holder, counter. ARGV: nonce, reservation (ms, or empty), retention (ms), 1 where a node
-- of a quorum is asked, the command that publishes, the channel.
local holds_now = redis.call('HGET', KEYS[1], 'nonce')
if holds_now == ARGV[1] then
    vacate(KEYS[1], KEYS[2], ARGV[1], ARGV[3])
    if ARGV[2] ~= '' then
        reserve(KEYS[2], tonumber(ARGV[2]), '', tonumber(ARGV[3]))
    end
    tell(ARGV[5], ARGV[6])
    return 1
end
if not holds_now and ARGV[4] == '1' then
    -- This node may yet hear of the grant that is being released here: of a claim that is late,
    -- or of being put back.
    redis.call('HSET', KEYS[2], 'last', ARGV[1])
    redis.call('PEXPIRE', KEYS[2], ARGV[3])
end
return 0
