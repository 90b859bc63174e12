-- Reads the claims that wait for a key, in the order of their arrival, unless their places have expired.
SELECT nonce, request, lessee, ttl, attributes FROM waiter
WHERE key = :key
    AND boot = boot_id()
    AND ends > boot_time()
ORDER BY place
