-- Releases the key of a grant that is still current.
-- KEYS: lease. ARGV: nonce, token, reservation (ms, or empty), retention (ms), 1 on a node of a quorum,
-- the command that publishes, the channel.
local lease, nonce = KEYS[1], ARGV[1]

if ARGV[5] ~= '1' and ARGV[3] == '' then
    -- An expired grant is released too, if no other claim has obtained the key since.
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
    -- The vote for another claim may be withdrawn. This node must then still know of the release.
    if redis.call('HGET', lease, 'before') == nonce then
        redis.call('HSET', lease, 'last', nonce, 'before_under', ARGV[2])
    end
    return 0
end
-- A late claim or a restore of the released grant may still arrive at this node, so it stores the nonce. A
-- reservation needs a majority, so nodes without the grant write it too.
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
