-- Frees a key that its grant still holds.
-- KEYS: lease. ARGV: nonce, token, reservation (ms, or empty), retention (ms), 1 where a node of a
-- quorum is asked, the command that publishes, the channel.
local lease, nonce = KEYS[1], ARGV[1]

if ARGV[5] ~= '1' and ARGV[3] == '' then
    -- An expired grant is given up too if no other claim has obtained the key since.
    if redis.call('HGET', lease, 'granted') ~= nonce or redis.call('HDEL', lease, 'ends') == 0 then
        return 0
    end
    notify(ARGV[6], ARGV[7])
    return 1
end

local stands = standing(lease)
if stands == nonce then
    vacate(lease, nonce)
    if ARGV[5] == '1' then
        redis.call('HSET', lease, 'under', ARGV[2])
    end
    if ARGV[3] ~= '' then
        reserve(lease, tonumber(ARGV[3]), '', tonumber(ARGV[4]))
    end
    notify(ARGV[6], ARGV[7])
    return 1
end
if ARGV[5] ~= '1' then
    return 0
end
if stands then
    -- Another's vote stands, and may be withdrawn. Then this node must know of the release.
    if redis.call('HGET', lease, 'before') == nonce then
        redis.call('HSET', lease, 'last', nonce, 'before_under', ARGV[2])
    end
    return 0
end
-- This node may yet hear of the grant that is being released here: of a claim that is late, or of
-- being restored. And a reservation needs a majority, whether or not its nodes had the grant.
if is_followed(lease, nonce, tonumber(ARGV[2])) then
    return 0
end
redis.call('HSET', lease, 'last', nonce)
if redis.call('HGET', lease, 'granted') == nonce then
    redis.call('HSET', lease, 'under', ARGV[2])
end
keep(lease, redis.call('HGET', lease, 'kept'), tonumber(ARGV[4]))
if ARGV[3] ~= '' then
    reserve(lease, tonumber(ARGV[3]), '', tonumber(ARGV[4]))
end
return 1
