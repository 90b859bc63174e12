-- Returns the holders of one or more keys. KEYS: the lease of each.
local holders = {}
for place = 1, #KEYS do
    holders[place] = holder_at(KEYS[place])
end
return holders
