-- Marks the lock of a key for which a client waits. Returns 1 if the key is held.
local key = KEYS[1]
local text = call('GET', key)
if not is_held(text, now()) or sub(text, 1, 1) == 'r' then
    return 0
end
mark(key, text)
return 1
