-- Reads one row.
SELECT *, boot_time() AS now, boot_id() AS this_boot FROM lease WHERE key = :key
