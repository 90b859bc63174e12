-- Reads one row, and the boot time of the read.
SELECT *, boot_time() AS now, boot_id() AS this_boot FROM lease WHERE key = :key
