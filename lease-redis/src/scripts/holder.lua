-- Returns the holders of one or more keys. KEYS: one lease per key.
local holders = {}
for place = 1, #KEYS do
    holders[place] = holder_at(KEYS[place])
end
return holders
