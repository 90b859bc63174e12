-- Releases the key of a grant, and reserves it for no lessee. ARGV: nonce, number of the request, token,
-- length of the reservation, retention, publish, channel. Returns 1 if the key is reserved.
--
-- A late reservation must not reserve the key under a later grant of the same claim.
local lease, nonce, length = KEYS[1], ARGV[1], ARGV[4]
local text = lock_at(lease)
if text then
    if not holds_lock(text, nonce, ARGV[2], ARGV[3]) then
        return 0
    end
    -- Keeps the queue, because its waiters query the key when the reservation ends.
    local mark = has_queue(text) and 'q' or '-'
    write_lock(lease, nonce .. 'r' .. mark .. string.sub(text, 35), length)
    notify_waiters(text, ARGV[6], ARGV[7])
    return 1
end
local granted, token = standing(lease)
if granted ~= nonce or token ~= ARGV[3] then
    return 0
end
vacate(lease, nonce)
reserve(lease, tonumber(length), '', tonumber(ARGV[5]))
notify(lease, ARGV[6], ARGV[7])
return 1
