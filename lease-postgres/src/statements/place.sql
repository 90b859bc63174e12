-- Renews the place of a claim in the queue of its key, or adds a place. If the key is free, grants it to the
-- first claim whose place has not expired.
-- $1 key, $2 nonce, $3 lessee, $4 ttl in microseconds, $5 number of the request, $6 the channel of the client, or
-- NULL; $7 is 1 if the claim may join. $8 lock timeout.
WITH patience AS MATERIALIZED (SELECT set_config('lock_timeout', $8, true)),
-- The queue is a column of the locked row, so no release can come between the check and the write.
seen AS MATERIALIZED (
    SELECT h.* FROM patience, "lease" h WHERE h.key = $1 FOR UPDATE OF h),
here AS MATERIALIZED (
    SELECT s.*, clock_timestamp() AS now,
        -- A holder has no place, and a claim that was granted before is not granted again. A key under a
        -- session has no queue.
        (s.granted = $2 OR s.last = $2 OR s.ends = 'infinity') IS TRUE AS is_refused
    FROM seen s),
-- The request number is the largest that has arrived.
own AS MATERIALIZED (
    SELECT max(q.place) AS place, jsonb_build_object(
        'nonce', $2::text, 'request', greatest($5, max((q.item ->> 'request')::bigint)),
        'lessee', $3, 'ttl', $4, 'client', $6,
        'until', (SELECT (extract(epoch FROM h.now) * 1000000)::bigint + $4 FROM here h)) AS item
    FROM here h, jsonb_array_elements(h.queue) WITH ORDINALITY AS q (item, place)
    WHERE q.item ->> 'nonce' = $2::text),
claims AS MATERIALIZED (
    SELECT q.place, q.item
    FROM here h, jsonb_array_elements(h.queue) WITH ORDINALITY AS q (item, place)
    WHERE q.item ->> 'nonce' <> $2::text
        AND (q.item ->> 'until')::bigint > extract(epoch FROM h.now) * 1000000
    UNION ALL
    SELECT coalesce(o.place, 9223372036854775807), o.item FROM own o, here h
    WHERE NOT h.is_refused AND (o.place IS NOT NULL OR $7 = 1)),
first AS MATERIALIZED (
    SELECT c.item FROM claims c, here h
    WHERE (h.ends IS NULL OR h.ends <= h.now)
        AND (h.until IS NULL OR h.until <= h.now OR h.only_for = c.item ->> 'lessee')
    ORDER BY c.place LIMIT 1),
rest AS MATERIALIZED (
    SELECT jsonb_agg(c.item ORDER BY c.place) AS queue FROM claims c
    WHERE c.item IS DISTINCT FROM (SELECT item FROM first)),
moved AS (
    UPDATE "lease" l SET
        token = greatest(
            coalesce(h.token, 0) + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint),
        last = CASE WHEN h.ends IS NULL THEN coalesce(h.granted, h.last) ELSE h.last END,
        granted = (f.item ->> 'nonce')::uuid,
        request = (f.item ->> 'request')::bigint,
        lessee = f.item ->> 'lessee',
        ends = clock_timestamp() + (f.item ->> 'ttl')::bigint * interval '1 microsecond',
        beat = 0, evicted = NULL, until = NULL, only_for = NULL, queue = r.queue
    FROM here h, first f, rest r
    WHERE l.key = h.key
    RETURNING l.token, l.attributes, f.item),
kept AS (
    UPDATE "lease" l SET queue = r.queue
    FROM here h, rest r
    WHERE l.key = h.key AND NOT EXISTS (SELECT FROM first) AND h.queue IS DISTINCT FROM r.queue)
SELECT CASE
        WHEN h.granted = $2 AND h.ends > h.now THEN 'again'
        WHEN h.ends = 'infinity' THEN 'race'
        WHEN m.item ->> 'nonce' = $2::text THEN 'granted'
        WHEN h.is_refused OR (o.place IS NULL AND $7 <> 1) THEN 'gone'
        ELSE 'queued'
    END AS verdict,
    coalesce(m.token, h.token) AS token,
    coalesce((m.item ->> 'request')::bigint, h.request) AS request,
    coalesce(m.item ->> 'lessee', h.lessee) AS lessee,
    CASE
        WHEN m.item IS NOT NULL THEN (m.item ->> 'ttl')::bigint
        WHEN isfinite(greatest(h.ends, h.until)) THEN
            (extract(epoch FROM greatest(h.ends, h.until) - clock_timestamp()) * 1000000)::bigint
    END AS remaining,
    h.attributes::text AS attributes, h.parent, h.parent_token,
    (SELECT count(*) FROM claims c
        WHERE c.place < coalesce(o.place, 9223372036854775807) AND c.item IS DISTINCT FROM m.item) AS ahead,
    -- A notification is too short for attributes. Without a token, it lets the waiter ask.
    (SELECT pg_notify(m.item ->> 'client', format('%s %s %s',
            m.item ->> 'nonce', m.item ->> 'request', CASE WHEN m.attributes = '{}' THEN m.token ELSE 0 END))::text
        WHERE m.item ->> 'nonce' <> $2::text AND m.item ->> 'client' IS NOT NULL)
FROM here h CROSS JOIN own o LEFT JOIN moved m ON true
