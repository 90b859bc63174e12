-- Removes rows whose nonce is so old that no duplicate of its claim can still arrive. A trigger keeps the
-- token.
DELETE FROM lease
WHERE record <> 'lasting'
    AND boot = boot_id()
    AND coalesce(ends, freed, 0) <= boot_time() - max(coalesce(ttl, 0), :kept)
    AND coalesce(until, 0) <= boot_time()
