-- Renews the place of a claim.
UPDATE waiter SET
    request = max(request, :request),
    boot = boot_id(),
    ends = boot_time() + :ttl
WHERE key = :key
    AND nonce = :nonce
