-- Reads the rows after a key, in the order of their keys: one page.
SELECT *, boot_time() AS now, boot_id() AS this_boot FROM lease
WHERE key >= :prefix AND key > :after
ORDER BY key
LIMIT :limit
