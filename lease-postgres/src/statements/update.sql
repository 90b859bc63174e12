-- Changes attributes under a grant, if the current attributes match the expected ones.
-- $1 key, $2 nonce, $3 token, $4 attributes to set, $5 names to remove, $6 expected attributes,
-- $7 names that must be absent, $8 lock timeout.
WITH patience AS MATERIALIZED (SELECT set_config('lock_timeout', $8, true)),
seen AS MATERIALIZED (
    SELECT h.* FROM patience, "lease" h WHERE h.key = $1 FOR UPDATE OF h),
changed AS (
    UPDATE "lease" l SET
        kept = true,
        attributes = (s.attributes - $5) || $4::jsonb
    FROM seen s
    WHERE l.key = s.key AND s.granted = $2 AND s.token = $3 AND s.ends > clock_timestamp()
        AND NOT EXISTS (
            SELECT FROM jsonb_each($6::jsonb) e
            WHERE s.attributes -> e.key IS DISTINCT FROM e.value)
        AND NOT s.attributes ?| $7
    RETURNING l.key)
SELECT CASE
        WHEN EXISTS (SELECT FROM changed) THEN 'applied'
        WHEN s.granted = $2 AND s.token = $3 AND s.ends > clock_timestamp() THEN 'unexpected'
        WHEN s.token > $3 THEN 'superseded'
        WHEN s.last = $2 OR (s.granted = $2 AND s.ends IS NULL) THEN 'revoked'
        ELSE 'expired'
    END AS verdict
FROM seen s
