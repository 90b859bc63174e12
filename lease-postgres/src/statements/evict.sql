-- Marks the current grant, so that the server refuses its further heartbeats. Then returns a row.
-- $1 key, $2 token, $3 lock timeout.
WITH patience AS MATERIALIZED (SELECT set_config('lock_timeout', $3, true)),
seen AS MATERIALIZED (
    SELECT h.* FROM patience, "lease" h WHERE h.key = $1 FOR UPDATE OF h)
UPDATE "lease" l SET evicted = s.granted
FROM seen s
WHERE l.key = s.key AND s.token = $2 AND s.ends > clock_timestamp()
RETURNING l.key
