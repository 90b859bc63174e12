-- Extends grants, each by its own ttl. Each row of the answer has the place of its grant, counted from 1.
-- Arrays: $1 keys, $2 nonces, $3 tokens, $4 numbers of the heartbeats, $5 ttls in microseconds.
-- $6 lock timeout. A batch adds SKIP LOCKED, because another session may hold a lock for long.
WITH patience AS MATERIALIZED (SELECT set_config('lock_timeout', $6, true)),
-- An UPDATE that waits for a lock would compare with the time before the wait. So the rows are locked first,
-- in the order of the keys, which prevents deadlocks.
mine AS MATERIALIZED (
    SELECT a.nonce, a.asked, a.number, a.ttl, a.place,
        l.key, l.token, l.granted, l.ends, l.beat, l.evicted, l.last
    FROM patience,
        unnest($1, $2, $3, $4, $5) WITH ORDINALITY AS a (key, nonce, asked, number, ttl, place)
        JOIN "lease" l USING (key)
    ORDER BY l.key
    FOR UPDATE OF l),
extended AS (
    UPDATE "lease" l SET
        beat = m.number,
        ends = clock_timestamp() + m.ttl * interval '1 microsecond'
    FROM mine m
    WHERE l.key = m.key
        AND m.granted = m.nonce AND m.token = m.asked
        AND m.ends > clock_timestamp()
        AND m.evicted IS DISTINCT FROM m.nonce
        AND m.beat < m.number
    RETURNING m.place)
SELECT a.place, CASE
        WHEN e.place IS NOT NULL THEN 'extended'
        WHEN m.place IS NULL AND l.key IS NOT NULL THEN 'locked'
        WHEN m.place IS NULL THEN 'expired'
        WHEN m.token > a.asked THEN 'superseded'
        WHEN m.last = a.nonce OR (m.granted = a.nonce AND m.ends IS NULL) THEN 'revoked'
        WHEN m.ends > clock_timestamp() AND m.evicted = a.nonce THEN 'revoked'
        WHEN m.granted = a.nonce AND m.ends > clock_timestamp() AND m.beat >= a.number
            THEN 'overtaken'
        ELSE 'expired'
    END AS verdict
FROM unnest($1, $2, $3, $4, $5) WITH ORDINALITY AS a (key, nonce, asked, number, ttl, place)
    LEFT JOIN mine m USING (place)
    LEFT JOIN extended e USING (place)
    LEFT JOIN "lease" l ON l.key = a.key
