-- Runs when this boot first sees a row of another boot. The times of two boots cannot be compared, so the
-- lease lasts one more ttl. A write under a grant of another boot may apply at once, or is repeated after
-- this statement. A lease under a session has no ttl, and stays as it is.
UPDATE lease SET
    boot = boot_id(),
    ends = iif(ends = 9223372036854775807, ends, boot_time() + iif(ends IS NULL, NULL, ttl)),
    until = boot_time() + iif(until IS NULL, NULL, reserved),
    freed = boot_time()
WHERE boot <> boot_id()
    AND (:key IS NULL OR key = :key)
