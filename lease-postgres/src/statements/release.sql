-- Frees the key of a grant, and notifies the clients that watch the key. If claims are queued for the key, the
-- statement changes nothing, and `hand_on.sql` follows. A reservation keeps the queue, and its claims are notified,
-- so that they ask how long it lasts.
-- $1 key, $2 nonce, $3 token, $4 length of the reservation in microseconds or NULL, $5 channel, $6 lock
-- timeout.
-- No condition depends on the time, so the statement needs no earlier lock.
UPDATE "lease" SET
    ends = NULL, only_for = NULL,
    until = clock_timestamp() + coalesce($4, 0) * interval '1 microsecond'
WHERE key = $1 AND granted = $2 AND token = $3 AND ends IS NOT NULL
    AND (queue IS NULL OR $4 IS NOT NULL)
    AND set_config('lock_timeout', $6, true) IS NOT NULL
-- NOTIFY locks the whole server at the commit, so only releases with a waiter send it.
RETURNING CASE WHEN waits OR queue IS NOT NULL THEN pg_notify($5, key)::text END
