-- Deletes a record under the current grant. The row keeps the token and the nonce.
UPDATE lease SET
    boot = boot_id(),
    last = nonce,
    last_lessee = lessee,
    freed = boot_time(),
    nonce = NULL,
    ends = NULL,
    record = 'deleted',
    attributes = '{}'
WHERE key = :key
    AND nonce = :nonce
    AND token = :token
    AND ends > boot_time()
