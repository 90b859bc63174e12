-- Removes the expiry of a record's hash, which earlier versions have set. Returns 1 if the key has a record.
local lease = KEYS[1]
if redis.call('HEXISTS', KEYS[2], '.') == 0 then
    return 0
end
if not lock_at(lease) then
    keep_for_ever(lease, redis.call('HGET', lease, 'kept'))
end
return 1
