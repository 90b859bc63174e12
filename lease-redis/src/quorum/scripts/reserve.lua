-- Releases the key of a grant and reserves it for no lessee. It runs only on nodes that vote. A node that
-- does not vote may have forgotten a grant that holds the key. KEYS: the key. ARGV: retention (ms), nonce
-- of the grant, its token plus 1, its token, its lessee, length (ms). Returns 1 if the key is reserved.
--
-- A reservation needs a majority. So nodes without the grant also write it, unless a later grant followed.
local key, time = KEYS[1], now()
local retention, nonce, least, token, lessee, length = unpack(ARGV)

local text = call('GET', key)
local other = is_held(text, time)
local _, bound = numbers_in(text)
local held = other and holds(text, nonce, least)
-- PEXPIRE comes first: a server at its maxmemory refuses SET unless the script has written before.
call('PEXPIRE', key, retention)
if not held and (other or bound >= least) then
    raise(key, text, least, retention)
    return 0
end
local count, raised_bound = raised(text, least)
local waits = held and sub(text, 2, 2) or '-'
local head = 'r' .. waits .. nonce .. token .. count .. raised_bound
call('SET', key, head .. '0 ' .. lessee .. NONE .. end_of(time, length), 'PX', retention)
if held then
    notify(key, text)
end
return 1
