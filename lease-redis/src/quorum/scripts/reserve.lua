-- Releases the key of a grant and reserves it for no lessee. `least` is the grant's token plus 1. Returns 1
-- if the key is reserved.
--
-- Only nodes that vote run this script, because other nodes may have forgotten a grant that holds the key. A
-- reservation needs a majority. So nodes without the grant also write it, unless a later grant followed.
local key, time = KEYS[1], now()
local retention, nonce, least, token, lessee, length = unpack(ARGV)

local text = call('GET', key)
local other = is_held(text, time)
local _, bound = numbers_in(text)
local held = other and holds(text, nonce, least)
-- PEXPIRE counts as a write, so SET succeeds on a server at its maxmemory.
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
