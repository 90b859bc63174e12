-- Returns the text and the expiry (ms) of one or more locks, or nothing for a key that nobody holds.
-- KEYS: the lock of each. ARGV: 1 if the client waits for the keys.
return answers_of(#KEYS, function(place)
    local lock = KEYS[place]
    local text = call('GET', lock)
    if not text or sub(text, 33, 33) == 'r' then
        return false
    end
    if ARGV[1] == '1' then
        mark(lock, text)
    end
    return report(lock, text)
end)
