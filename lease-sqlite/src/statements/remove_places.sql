-- Removes places that have expired.
DELETE FROM waiter WHERE boot <> boot_id() OR ends <= boot_time()
