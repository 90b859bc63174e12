-- Marks a grant as evicted. Then the node refuses its heartbeats, and the grant expires.
-- KEYS: the grant's key. ARGV: the nonce of the grant, or its token. Returns 1 if it was the current grant.
local key, named = KEYS[1], ARGV[1]
local text = call('GET', key)
if not is_held(text, now()) or sub(text, 1, 1) == 'r' then
    return 0
end
if sub(text, 3, 34) ~= named and match(sub(text, 35, 50), '^0*(.*)$') ~= named then
    return 0
end
call('SETRANGE', key, 0, 'x')
return 1
