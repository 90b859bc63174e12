-- Frees a key and reserves it, for one lessee or against all lessees.
UPDATE lease SET
    boot = boot_id(),
    last = nonce,
    last_lessee = lessee,
    freed = boot_time(),
    nonce = NULL,
    ends = NULL,
    reserved = :reserved,
    until = boot_time() + :reserved,
    only_for = :only_for
WHERE key = :key
    AND nonce = :nonce
    AND token = :token
    AND ends > boot_time()
