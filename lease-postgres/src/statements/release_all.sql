-- Frees several keys, as `release.sql` does without a reservation. Each row of the answer has the place of its
-- grant, counted from 1. For a grant without a row in the answer, `hand_on.sql` follows: it waits for a locked row.
-- Arrays: $1 keys, $2 nonces, $3 tokens. $4 channel, $5 lock timeout.
WITH patience AS MATERIALIZED (SELECT set_config('lock_timeout', $5, true)),
-- As in `obtain_released_all.sql`.
held AS MATERIALIZED (
    SELECT l.key, a.place
    FROM patience, unnest($1, $2, $3) WITH ORDINALITY AS a (key, nonce, asked, place)
        JOIN "lease" l USING (key)
    WHERE l.granted = a.nonce AND l.token = a.asked AND l.ends IS NOT NULL
        AND l.queue IS NULL
    FOR UPDATE OF l SKIP LOCKED)
UPDATE "lease" l SET
    ends = NULL, only_for = NULL, until = clock_timestamp()
FROM held h
WHERE l.key = h.key
RETURNING h.place, CASE WHEN l.waits THEN pg_notify($4, l.key)::text END AS notified
