-- Creates a record without a holder, if the key has neither a record nor a holder.
INSERT INTO lease AS l (key, boot, record, attributes)
VALUES (:key, boot_id(), 'lasting', :attributes)
ON CONFLICT (key) DO UPDATE SET
    record = 'lasting',
    attributes = excluded.attributes
WHERE l.record <> 'lasting'
    AND (l.ends IS NULL OR (l.boot = boot_id() AND l.ends <= boot_time()))
