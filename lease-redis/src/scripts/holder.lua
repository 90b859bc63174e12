-- Returns the holder of a key. KEYS: lease.
return report_holder(KEYS[1])
