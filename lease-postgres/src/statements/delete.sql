-- Deletes the record of a grant, ends the grant, and notifies the waiters. The row keeps the token and the
-- nonce.
-- $1 key, $2 nonce, $3 token, $4 channel, $5 lock timeout.
WITH patience AS MATERIALIZED (SELECT set_config('lock_timeout', $5, true)),
seen AS MATERIALIZED (
    SELECT h.* FROM patience, "lease" h WHERE h.key = $1 FOR UPDATE OF h),
freed AS (
    UPDATE "lease" l SET
        ends = NULL, waits = false, only_for = NULL, until = clock_timestamp(),
        kept = false, attributes = '{}'
    FROM seen s
    WHERE l.key = s.key AND s.granted = $2 AND s.token = $3 AND s.ends > clock_timestamp()
    RETURNING l.key, s.waits OR s.queue IS NOT NULL AS waits)
SELECT CASE
        WHEN EXISTS (SELECT FROM freed) THEN 'applied'
        WHEN s.token > $3 THEN 'superseded'
        WHEN s.last = $2 OR (s.granted = $2 AND s.ends IS NULL) THEN 'revoked'
        ELSE 'expired'
    END AS verdict,
    (SELECT pg_notify($4, key)::text FROM freed WHERE waits)
FROM seen s
