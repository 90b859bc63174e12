-- Marks a grant as evicted, so that the node refuses its heartbeats. `named` is the grant's nonce or its
-- token.
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
