-- Lets a client take part in the votes of this node. `lasted` is the run's age as far as the client knows it
-- (ms). Returns the minimum age of the run (ms), or the different settings of the earlier clients.
--
-- The record is a hash without expiry. Its field `since` is the latest time at which that run began, in
-- microseconds since 1970. A server that restarted with its data, or a promoted replica, has the record of
-- another run.
local record = KEYS[1]
local run, lasted, max_ttl, timeout = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local known = call('HMGET', record, 'run', 'since', 'max_ttl', 'timeout')
if known[3] and (known[3] ~= max_ttl or known[4] ~= timeout) then
    return { 'other', known[3], known[4] }
end
local clock = call('TIME')
local time = clock[1] * 1000000 + clock[2]
local since = time - lasted * 1000
if known[1] == run and tonumber(known[2]) <= since then
    since = tonumber(known[2])
else
    -- HDEL counts as a write, even for a missing field. So HSET succeeds on a server at its maxmemory.
    call('HDEL', record, '')
    call('HSET', record, 'run', run, 'since', since, 'max_ttl', max_ttl, 'timeout', timeout)
end
return { 'joined', math.floor((time - since) / 1000) }
