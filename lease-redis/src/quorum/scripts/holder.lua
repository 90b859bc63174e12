-- Returns the text and the expiry (ms) of each lock. ARGV: 1 if the client waits for the keys.
local time = now()

return answers_of(function(key)
    local text = call('GET', key)
    if not is_held(text, time) or sub(text, 1, 1) == 'r' then
        return false
    end
    if ARGV[1] == '1' then
        mark(key, text)
    end
    return report(text, time)
end)
