-- Refuses further heartbeats of a grant. The key stays held until the lease expires.
UPDATE lease SET evicted = 1
WHERE key = :key
    AND token = :token
    AND ends > boot_time()
