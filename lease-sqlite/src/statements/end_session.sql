-- Writes the end of a session whose lease has expired. If the file has lost the grant of the session, the row
-- gets the token of the session as an end mark, unless all later tokens are larger anyway.
INSERT INTO lease AS l (key, boot, token, freed, record)
SELECT :key, boot_id(), :token, boot_time(), 'temporary'
WHERE :token > (SELECT token FROM floor) OR EXISTS (SELECT 1 FROM lease WHERE key = :key)
ON CONFLICT (key) DO UPDATE SET
    boot = boot_id(),
    token = :token,
    last = coalesce(l.nonce, l.last),
    last_lessee = iif(l.nonce IS NULL, l.last_lessee, l.lessee),
    freed = boot_time(),
    nonce = NULL,
    ends = NULL
WHERE l.boot = boot_id()
    AND (l.token IS NULL OR l.token <= :token)
    AND iif(l.ends IS NULL, l.token IS NOT :token, l.ends <= boot_time())
