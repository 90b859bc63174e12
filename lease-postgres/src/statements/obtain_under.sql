-- Grants a key in the state that a client has read: the token is the same, and the last grant has ended, or is
-- one under a session that has ended.
-- $1 key, $2 nonce, $3 lessee, $4 ttl in microseconds, $5 number of the request, $6 attributes or NULL,
-- $7 the token that was read, or NULL. $8 key and $9 token of the session that has ended, or NULL.
-- $10 key and $11 token of the claim's session, or NULL. $12 lock timeout.
WITH patience AS MATERIALIZED (SELECT set_config('lock_timeout', $12, true)),
-- No condition depends on the time, so the statement needs no earlier lock. If a row refuses the claim, the row
-- also refuses a late copy of the claim.
won AS (
    UPDATE "lease" l SET
        token = greatest(
            coalesce(l.token, 0) + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint),
        last = coalesce(l.granted, l.last),
        granted = $2, request = $5, lessee = $3,
        ends = CASE WHEN $10 IS NULL THEN clock_timestamp() + $4 * interval '1 microsecond'
            ELSE 'infinity' END,
        parent = $10, parent_token = $11,
        beat = 0, evicted = NULL, until = NULL, only_for = NULL, waits = false,
        kept = l.kept OR $6 IS NOT NULL,
        attributes = l.attributes || coalesce($6::jsonb, '{}')
    FROM patience
    WHERE l.key = $1
        AND l.token IS NOT DISTINCT FROM $7
        AND CASE WHEN $8 IS NULL THEN l.ends IS NULL
            ELSE l.ends = 'infinity' AND l.parent = $8 AND l.parent_token = $9 END
    RETURNING l.*),
made AS (
    INSERT INTO "lease" AS l
        (key, token, granted, request, lessee, ends, parent, parent_token, beat, kept, attributes)
    SELECT $1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, $2, $5, $3,
        CASE WHEN $10 IS NULL THEN clock_timestamp() + $4 * interval '1 microsecond'
            ELSE 'infinity' END,
        $10, $11, 0, $6 IS NOT NULL, coalesce($6::jsonb, '{}')
    FROM patience
    WHERE $7 IS NULL AND NOT EXISTS (SELECT FROM "lease" h WHERE h.key = $1)
    ON CONFLICT (key) DO NOTHING
    RETURNING l.*)
SELECT 'granted' AS verdict, token, request, lessee, NULL::bigint AS remaining,
    attributes::text AS attributes, NULL::text AS parent, NULL::bigint AS parent_token
FROM (SELECT * FROM won UNION ALL SELECT * FROM made) AS grants
UNION ALL
-- Reads the row as it was when the statement began. If this row does not refuse the claim, it has changed since.
SELECT CASE
        WHEN h.granted = $2 AND h.ends > clock_timestamp() THEN 'again'
        WHEN h.token IS NOT DISTINCT FROM $7
            AND CASE WHEN $8 IS NULL THEN h.ends IS NULL
                ELSE h.ends = 'infinity' AND h.parent = $8 AND h.parent_token = $9 END
            THEN 'changed'
        WHEN h.ends > clock_timestamp() THEN 'held'
        ELSE 'passed'
    END, h.token, h.request, coalesce(h.lessee, $3),
    CASE WHEN isfinite(h.ends) THEN
        (extract(epoch FROM h.ends - clock_timestamp()) * 1000000)::bigint END,
    h.attributes::text, h.parent, h.parent_token
FROM "lease" h WHERE h.key = $1 AND NOT EXISTS (SELECT FROM won)
