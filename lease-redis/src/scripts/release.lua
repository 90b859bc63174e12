-- Frees a key that its grant still holds.
-- KEYS: holder, counter. ARGV: nonce, token, reservation (ms, or empty), retention (ms), 1 where a
-- node of a quorum is asked, the command that publishes, the channel.
local holds_now = redis.call('HGET', KEYS[1], 'nonce')
if holds_now == ARGV[1] then
    vacate(KEYS[1], KEYS[2], ARGV[1], ARGV[4])
    if ARGV[5] == '1' then
        redis.call('HSET', KEYS[2], 'under', ARGV[2])
    end
    if ARGV[3] ~= '' then
        reserve(KEYS[2], tonumber(ARGV[3]), '', tonumber(ARGV[4]))
    end
    tell(ARGV[6], ARGV[7])
    return 1
end
if ARGV[5] ~= '1' then
    return 0
end
if holds_now then
    -- Another's vote stands, and may be taken back. Then this node must know of the release.
    if redis.call('HGET', KEYS[2], 'before') == ARGV[1] then
        redis.call('HSET', KEYS[2], 'last', ARGV[1], 'before_under', ARGV[2])
    end
    return 0
end
-- This node may yet hear of the grant that is being released here: of a claim that is late, or of
-- being put back. And a reservation needs a majority, whoever of it had the grant.
if is_followed(KEYS[2], ARGV[1], tonumber(ARGV[2])) then
    return 0
end
redis.call('HSET', KEYS[2], 'last', ARGV[1])
if redis.call('HGET', KEYS[2], 'granted') == ARGV[1] then
    redis.call('HSET', KEYS[2], 'under', ARGV[2])
end
keep(KEYS[2], tonumber(ARGV[4]))
if ARGV[3] ~= '' then
    reserve(KEYS[2], tonumber(ARGV[3]), '', tonumber(ARGV[4]))
end
return 1
