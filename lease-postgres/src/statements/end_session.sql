-- Writes the end of a session whose lease has expired, and notifies the clients that wait for its key.
-- $1 key, $2 token, $3 channel, $4 lock timeout.
WITH patience AS MATERIALIZED (SELECT set_config('lock_timeout', $4, true)),
-- An UPDATE that waits for the lock would compare with the time before the wait. So the row is locked first.
seen AS MATERIALIZED (
    SELECT h.* FROM patience, "lease" h WHERE h.key = $1 FOR UPDATE OF h),
ended AS (
    UPDATE "lease" l SET
        token = $2, ends = NULL, waits = false, until = greatest(s.until, clock_timestamp())
    FROM seen s
    WHERE l.key = s.key
        -- A smaller token: a failover has lost the grant of the session. Then the row gets the end mark.
        AND (s.token IS NULL OR s.token <= $2)
        AND (s.ends <= clock_timestamp() OR (s.ends IS NULL AND s.token IS DISTINCT FROM $2))
    RETURNING l.key, s.waits OR s.queue IS NOT NULL AS waits),
-- Without a row, an end mark: a late copy of the session's claim could be granted, and have the same token.
marked AS (
    INSERT INTO "lease" (key, token, until)
    SELECT $1, $2, clock_timestamp() FROM patience WHERE NOT EXISTS (SELECT FROM seen)
    ON CONFLICT (key) DO NOTHING
    RETURNING key)
SELECT CASE
        WHEN EXISTS (SELECT FROM ended) OR EXISTS (SELECT FROM marked) THEN 'ended'
        WHEN s.token > $2 OR (s.token = $2 AND s.ends IS NULL) THEN 'ended'
        WHEN s.ends > clock_timestamp() THEN 'held'
        ELSE 'changed'
    END AS verdict, s.token, s.request, s.lessee,
    CASE WHEN isfinite(s.ends) THEN
        (extract(epoch FROM s.ends - clock_timestamp()) * 1000000)::bigint END AS remaining,
    '{}' AS attributes, s.parent, s.parent_token,
    (SELECT pg_notify($3, key)::text FROM ended WHERE waits)
FROM (SELECT) AS one LEFT JOIN seen s ON true
