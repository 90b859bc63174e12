-- Grants the key if it is free.
-- $1 key, $2 nonce, $3 lessee, $4 ttl in microseconds, $5 number of the request, $6 attributes or NULL,
-- $7 lock timeout.
WITH patience AS MATERIALIZED (SELECT set_config('lock_timeout', $7, true)),
won AS (
    INSERT INTO "lease" AS l (key, token, granted, request, lessee, ends, beat, kept, attributes)
    SELECT $1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, $2, $5, $3,
        clock_timestamp() + $4 * interval '1 microsecond', 0, $6 IS NOT NULL, coalesce($6::jsonb, '{}')
    FROM patience
    -- This condition refuses without a write. Otherwise, each refused claim would write a lock into the row.
    WHERE NOT EXISTS (
        SELECT FROM "lease" h WHERE h.key = $1 AND (
            h.ends > clock_timestamp()
            OR h.granted = $2 OR h.last = $2
            OR (h.until > clock_timestamp() AND h.only_for IS DISTINCT FROM $3)))
    -- The row may have changed since. PostgreSQL locks the row before it evaluates this WHERE.
    ON CONFLICT (key) DO UPDATE SET
        token = greatest(
            coalesce(l.token, 0) + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint),
        last = CASE WHEN l.ends IS NULL THEN coalesce(l.granted, l.last) ELSE l.last END,
        granted = $2, request = $5, lessee = $3,
        ends = clock_timestamp() + $4 * interval '1 microsecond',
        beat = 0, evicted = NULL, until = NULL, only_for = NULL, waits = false,
        kept = l.kept OR $6 IS NOT NULL,
        attributes = l.attributes || coalesce($6::jsonb, '{}')
    WHERE (l.ends IS NULL OR l.ends <= clock_timestamp())
        AND l.granted IS DISTINCT FROM $2 AND l.last IS DISTINCT FROM $2
        AND (l.until IS NULL OR l.until <= clock_timestamp() OR l.only_for = $3)
    RETURNING l.*)
SELECT 'granted' AS verdict, token, request, lessee, NULL::bigint AS remaining,
    attributes::text AS attributes, NULL::text AS parent, NULL::bigint AS parent_token
FROM won
UNION ALL
-- Reads the row as it was when the statement began, which explains the refusal unless the row has changed.
SELECT CASE
        WHEN h.granted = $2 AND h.ends > clock_timestamp() THEN 'again'
        WHEN h.granted = $2 OR h.last = $2 THEN 'late'
        WHEN h.ends > clock_timestamp() THEN 'held'
        WHEN h.until > clock_timestamp() AND h.only_for IS DISTINCT FROM $3 THEN 'reserved'
        ELSE 'changed'
    END, h.token, h.request,
    CASE
        WHEN h.ends > clock_timestamp() THEN h.lessee
        WHEN h.until > clock_timestamp() THEN coalesce(h.only_for, h.lessee)
        -- Another lessee may have had the last grant. If the refusal names this claim's own lessee, its locker
        -- makes a new claim.
        WHEN h.granted = $2 OR h.last = $2 THEN $3
        ELSE coalesce(h.only_for, h.lessee)
    END,
    CASE WHEN isfinite(greatest(h.ends, h.until)) THEN
        (extract(epoch FROM greatest(h.ends, h.until) - clock_timestamp()) * 1000000)::bigint END,
    h.attributes::text, h.parent, h.parent_token
FROM "lease" h WHERE h.key = $1 AND NOT EXISTS (SELECT FROM won)
