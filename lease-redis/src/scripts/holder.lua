-- Tells who holds a key. KEYS: lease.
return told_of(KEYS[1])
