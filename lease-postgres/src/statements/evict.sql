-- Marks the current grant, so that the server refuses its further heartbeats. A lease under a session sends no
-- heartbeats, so it is not marked.
-- $1 key, $2 token, $3 lock timeout.
WITH patience AS MATERIALIZED (SELECT set_config('lock_timeout', $3, true)),
seen AS MATERIALIZED (
    SELECT h.* FROM patience, "lease" h WHERE h.key = $1 FOR UPDATE OF h),
marked AS (
    UPDATE "lease" l SET evicted = s.granted
    FROM seen s
    WHERE l.key = s.key AND s.token = $2 AND s.ends > clock_timestamp()
        AND isfinite(s.ends)
    RETURNING l.key)
SELECT CASE
        WHEN EXISTS (SELECT FROM marked) THEN 'marked'
        WHEN s.ends = 'infinity' AND s.parent IS NOT NULL THEN 'child'
        ELSE 'other'
    END AS verdict
FROM seen s
