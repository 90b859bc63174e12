-- Reads one page: rows whose keys come after a given key, in the order of the keys.
SELECT *, boot_time() AS now, boot_id() AS this_boot FROM lease
WHERE key >= :prefix AND key > :after
ORDER BY key
LIMIT :limit
