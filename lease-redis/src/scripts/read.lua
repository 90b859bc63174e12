-- Reads a record. KEYS: holder, counter, attributes.
return { told_of(KEYS[1]), redis.call('HGET', KEYS[2], 'token'), redis.call('HGETALL', KEYS[3]) }
