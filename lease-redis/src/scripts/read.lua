-- Reads a record. KEYS: lease, attributes.
return { told_of(KEYS[1]), redis.call('HGET', KEYS[1], 'token'), redis.call('HGETALL', KEYS[2]) }
