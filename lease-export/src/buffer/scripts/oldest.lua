-- Returns the age of the oldest entry in milliseconds, by the server's clock. Returns nil if the
-- stream is empty.
-- KEYS: stream.
local oldest = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1]
if not oldest then
    return false
end
local now = redis.call('TIME')
-- The first part of an entry's id is the time of its append. The clock may have gone back since.
local appended = tonumber(string.match(oldest[1], '^%d+'))
return math.max(0, now[1] * 1000 + math.floor(now[2] / 1000) - appended)
