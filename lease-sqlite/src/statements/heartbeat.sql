-- Extends a lease. Never revives an expired lease.
UPDATE lease SET
    boot = boot_id(),
    ttl = :ttl,
    ends = boot_time() + :ttl,
    beat = :beat
WHERE key = :key
    AND nonce = :nonce
    AND token = :token
    AND ends > boot_time()
    AND evicted = 0
    AND beat < :beat
