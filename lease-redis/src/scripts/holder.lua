-- Tells who holds a key. KEYS: holder.
return told_of(KEYS[1])
