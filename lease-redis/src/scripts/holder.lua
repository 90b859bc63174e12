-- Returns the holders of one or more keys.
local holders = {}
for place = 1, #KEYS do
    holders[place] = holder_at(KEYS[place])
end
return holders
