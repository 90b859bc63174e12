-- Removes a claim from the queue of its key.
DELETE FROM waiter WHERE key = :key AND nonce = :nonce
