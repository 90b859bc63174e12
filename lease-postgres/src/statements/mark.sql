-- Notes that a client waits for the key, so that the release is notified. Returns whether the key is held.
-- $1 key, $2 lock timeout.
WITH patience AS MATERIALIZED (SELECT set_config('lock_timeout', $2, true)),
seen AS MATERIALIZED (
    SELECT h.key, h.waits, h.ends FROM patience, "lease" h
    WHERE h.key = $1
        -- The second client that waits for a grant writes nothing.
        AND EXISTS (
            SELECT FROM "lease" g
            WHERE g.key = $1 AND NOT g.waits AND g.ends > clock_timestamp())
    FOR UPDATE OF h),
marked AS (
    UPDATE "lease" l SET waits = true
    FROM seen s WHERE l.key = s.key AND NOT s.waits AND s.ends > clock_timestamp())
SELECT coalesce(
    (SELECT (s.ends > clock_timestamp()) IS TRUE FROM seen s),
    (SELECT (h.ends > clock_timestamp()) IS TRUE FROM "lease" h WHERE h.key = $1),
    false) AS waits
