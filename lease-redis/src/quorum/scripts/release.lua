-- Releases the keys of one or more grants.
-- KEYS: lock and counter of each. ARGV: retention (ms); then, of each, the beginning of the lock's text
-- (nonce, state, mark, token) if nobody waits, and the token plus 1.
-- Returns, for each grant, 1 if it was released, or 0 if it did not hold the key.
--
-- The numbers grow in both cases: a late claim or a restore of the grant may still arrive.
local retention = ARGV[1]

return answers_of(#KEYS / 2, function(place)
    local lock, counter = KEYS[2 * place - 1], KEYS[2 * place]
    local usual, least = ARGV[2 * place], ARGV[2 * place + 1]
    local text = call('GET', lock)
    if text and (find(text, usual, 1, true) == 1 or holds(text, sub(usual, 1, 32), least)) then
        call('DEL', lock)
        raise(counter, least, retention)
        notify(lock, text)
        return 1
    end
    -- A server at its maxmemory refuses SET unless the script has written before. PEXPIRE, which needs no
    -- memory, counts as a write.
    call('PEXPIRE', counter, retention)
    raise(counter, least, retention, lock, text)
    return 0
end)
