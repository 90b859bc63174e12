-- Releases the keys that `release_usual.lua` leaves to this script.
local answers, rest = ...
local retention = ARGV[1]

return answers_without_memory(retention, function(key, place)
    local usual, least = ARGV[2 * place], ARGV[2 * place + 1]
    local text = call('GET', key)
    if text and is_lock(text) and holds(text, sub(usual, 3, 34), least) then
        call('SET', key, free_text(raised(text, least)), 'PX', retention)
        notify(key, text)
        return 1
    end
    raise(key, text, least, retention)
    return 0
end, answers, rest)
