-- Frees a key, also after its lease has expired, if no later claim was granted.
UPDATE lease SET
    boot = boot_id(),
    last = nonce,
    last_lessee = lessee,
    freed = boot_time(),
    nonce = NULL,
    ends = NULL
WHERE key = :key
    AND nonce = :nonce
    AND token = :token
