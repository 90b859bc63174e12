-- Removes the events that were set aside. KEYS: stream, state, aside. Returns their number.
local count = redis.call('XLEN', KEYS[3])
redis.call('DEL', KEYS[3])
return count
