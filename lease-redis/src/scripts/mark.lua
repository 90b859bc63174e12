-- Notes that a client waits for the key. ARGV: 1 on one logical server. Returns 1 if the key is held.
local lease = KEYS[1]
local text = ARGV[1] == '1' and lock_at(lease)
if text then
    if string.sub(text, 33, 33) == 'r' then
        return 0
    end
    add_mark(lease, text, 'w')
    return 1
end
if not standing(lease) then
    return 0
end
redis.pcall('HSET', lease, 'waits', 1)
return 1
