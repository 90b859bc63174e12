-- Frees the key of a grant, and notifies the clients that wait for it.
-- $1 key, $2 nonce, $3 token, $4 length of the reservation in microseconds or NULL, $5 channel,
-- $6 lock timeout.
WITH patience AS MATERIALIZED (SELECT set_config('lock_timeout', $6, true)),
seen AS MATERIALIZED (
    SELECT h.* FROM patience, "lease" h WHERE h.key = $1 FOR UPDATE OF h),
freed AS (
    UPDATE "lease" l SET
        ends = NULL, waits = false, only_for = NULL,
        until = clock_timestamp() + coalesce($4, 0) * interval '1 microsecond'
    FROM seen s
    WHERE l.key = s.key AND s.granted = $2 AND s.token = $3 AND s.ends IS NOT NULL
    RETURNING l.key, s.waits)
-- NOTIFY takes a lock of the whole server at the commit: only for clients that wait.
SELECT pg_notify($5, key)::text FROM freed WHERE waits
