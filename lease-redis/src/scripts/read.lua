-- Reads a record. KEYS: lease, attributes.
return { report_holder(KEYS[1]), redis.call('HGET', KEYS[1], 'token'), redis.call('HGETALL', KEYS[2]) }
