-- Replaces a handed-over grant with a grant for another claim.
-- $1 key, $2 nonce and $3 token of the handed-over grant, $4 nonce, $5 lessee, $6 ttl in microseconds and
-- $7 number of the request, $8 attributes or NULL. $9 key and $10 token of the claim's session, or NULL.
-- $11 lock timeout.
WITH patience AS MATERIALIZED (SELECT set_config('lock_timeout', $11, true)),
-- An UPDATE that waits for the lock would compare with the time before the wait. So the row is locked first.
seen AS MATERIALIZED (
    SELECT h.* FROM patience, "lease" h WHERE h.key = $1 FOR UPDATE OF h),
won AS (
    UPDATE "lease" l SET
        token = greatest(s.token + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint),
        last = s.granted,
        granted = $4, request = $7, lessee = $5,
        ends = CASE WHEN $9 IS NULL THEN clock_timestamp() + $6 * interval '1 microsecond'
            ELSE 'infinity' END,
        parent = $9, parent_token = $10,
        beat = 0, evicted = NULL, until = NULL, only_for = NULL,
        kept = s.kept OR $8 IS NOT NULL,
        attributes = s.attributes || coalesce($8::jsonb, '{}')
    FROM seen s
    WHERE l.key = s.key
        AND s.granted = $2 AND s.token = $3
        AND s.ends > clock_timestamp()
        AND s.evicted IS DISTINCT FROM s.granted
    RETURNING l.*)
SELECT 'granted' AS verdict, token, request, lessee, NULL::bigint AS remaining,
    attributes::text AS attributes, NULL::text AS parent, NULL::bigint AS parent_token
FROM won
UNION ALL
SELECT CASE
        WHEN s.granted = $4 AND s.ends > clock_timestamp() THEN 'again'
        WHEN s.ends > clock_timestamp() THEN 'held'
        ELSE 'free'
    END, s.token, s.request, s.lessee,
    CASE WHEN isfinite(s.ends) THEN
        (extract(epoch FROM s.ends - clock_timestamp()) * 1000000)::bigint END,
    s.attributes::text, s.parent, s.parent_token
FROM seen s WHERE NOT EXISTS (SELECT FROM won)
