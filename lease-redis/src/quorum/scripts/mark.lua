-- Notes that a client waits for the key. KEYS: lock. Returns 1 if the key is held.
local lock = KEYS[1]
local text = call('GET', lock)
if not text or sub(text, 33, 33) == 'r' then
    return 0
end
mark(lock, text)
return 1
