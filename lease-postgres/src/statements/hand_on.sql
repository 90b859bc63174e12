-- Frees the key of a grant, or grants it to the first waiter whose place has not expired. Takes the claim of the
-- grant out of the queue. If the key is free already, it is granted to the first waiter, too.
-- $1 key, $2 nonce, $3 token, or NULL for a claim that leaves the queue. $4 channel, $5 lock timeout.
WITH patience AS MATERIALIZED (SELECT set_config('lock_timeout', $5, true)),
-- The queue is a column of the locked row, so no waiter can join between the check and the write.
seen AS MATERIALIZED (
    SELECT h.* FROM patience, "lease" h WHERE h.key = $1 FOR UPDATE OF h),
here AS MATERIALIZED (
    SELECT s.*, clock_timestamp() AS now,
        (s.granted = $2 AND (s.token = $3 OR $3 IS NULL) AND s.ends IS NOT NULL) IS TRUE AS is_holder
    FROM seen s),
places AS MATERIALIZED (
    SELECT q.place, q.item
    FROM here h, jsonb_array_elements(h.queue) WITH ORDINALITY AS q (item, place)
    WHERE q.item ->> 'nonce' <> $2::text
        AND (q.item ->> 'until')::bigint > extract(epoch FROM h.now) * 1000000),
first AS MATERIALIZED (
    SELECT p.item FROM places p, here h
    WHERE h.is_holder
        OR ((h.ends IS NULL OR h.ends <= h.now) AND (h.until IS NULL OR h.until <= h.now))
    ORDER BY p.place LIMIT 1),
rest AS MATERIALIZED (
    SELECT jsonb_agg(p.item ORDER BY p.place) AS queue FROM places p
    WHERE p.item IS DISTINCT FROM (SELECT item FROM first)),
moved AS (
    UPDATE "lease" l SET
        token = greatest(
            coalesce(h.token, 0) + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint),
        -- The nonce of an expired grant would replace the nonce of the last grant that was released.
        last = CASE WHEN h.is_holder OR h.ends IS NULL THEN coalesce(h.granted, h.last) ELSE h.last END,
        granted = (f.item ->> 'nonce')::uuid,
        request = (f.item ->> 'request')::bigint,
        lessee = f.item ->> 'lessee',
        ends = clock_timestamp() + (f.item ->> 'ttl')::bigint * interval '1 microsecond',
        beat = 0, evicted = NULL, until = NULL, only_for = NULL, queue = r.queue
    FROM here h, first f, rest r
    WHERE l.key = h.key
    RETURNING l.token, l.queue, l.attributes),
freed AS (
    UPDATE "lease" l SET
        ends = CASE WHEN h.is_holder THEN NULL ELSE h.ends END,
        until = CASE WHEN h.is_holder THEN clock_timestamp() ELSE h.until END,
        only_for = CASE WHEN h.is_holder THEN NULL ELSE h.only_for END,
        queue = r.queue
    FROM here h, rest r
    WHERE l.key = h.key AND NOT EXISTS (SELECT FROM first)
        AND (h.is_holder OR h.queue IS DISTINCT FROM r.queue)
    RETURNING l.key, h.is_holder AND h.waits AS waits)
SELECT CASE
        WHEN EXISTS (SELECT FROM moved) THEN 'granted'
        WHEN EXISTS (SELECT FROM freed) THEN 'freed'
        ELSE 'other'
    END AS verdict,
    coalesce((SELECT m.queue IS NOT NULL FROM moved m), false) AS waits,
    -- A notification is too short for attributes. Without a token, it lets the waiter ask.
    (SELECT pg_notify(f.item ->> 'client', format('%s %s %s',
            f.item ->> 'nonce', f.item ->> 'request', CASE WHEN m.attributes = '{}' THEN m.token ELSE 0 END))::text
        FROM moved m, first f WHERE f.item ->> 'client' IS NOT NULL),
    (SELECT pg_notify($4, key)::text FROM freed WHERE waits)
FROM here
