-- Lets a client take part in the votes of this node.
-- KEYS: record. ARGV: the run of the server, and the run's age as far as the client knows it (ms);
-- the client's max_ttl (ms), after the format of its locks, and timeout (ms).
-- Returns the minimum age of the run by the reports of all clients (ms), or the settings of the earlier
-- clients if they differ.
--
-- The record is a hash without expiry: run; since (the latest time at which that run began, in
-- microseconds since 1970); max_ttl and timeout. A server that restarted with its data, or a promoted
-- replica, has the record of another run.
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
    -- A server at its maxmemory refuses HSET unless the script has written before. HDEL, which needs no
    -- memory, counts as a write, although the field does not exist.
    call('HDEL', record, '')
    call('HSET', record, 'run', run, 'since', since, 'max_ttl', max_ttl, 'timeout', timeout)
end
return { 'joined', math.floor((time - since) / 1000) }
