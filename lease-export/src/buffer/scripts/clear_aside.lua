-- Removes what was set aside. KEYS: stream, state, aside. Answers how many entries there were.
local count = redis.call('XLEN', KEYS[3])
redis.call('DEL', KEYS[3])
return count
