-- Adds a claim to the end of the queue of its key.
INSERT INTO waiter (key, nonce, request, lessee, ttl, attributes, boot, ends)
VALUES (:key, :nonce, :request, :lessee, :ttl, :attributes, boot_id(), boot_time() + :ttl)
