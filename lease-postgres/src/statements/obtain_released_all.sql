-- Grants several keys, as `obtain_released.sql` does. Each row of the answer has the place of its claim, counted
-- from 1. For a claim without a row in the answer, `obtain.sql` decides: it waits for a locked row.
-- Arrays: $1 keys, $2 nonces, $3 lessees, $4 ttls in microseconds, $5 numbers of the requests.
-- $6 lock timeout.
WITH patience AS MATERIALIZED (SELECT set_config('lock_timeout', $6, true)),
-- PostgreSQL evaluates these conditions again for a changed row. SKIP LOCKED prevents deadlocks, and a row that
-- another session has locked does not delay the other claims. Of two claims of one key, the UPDATE uses one.
free AS MATERIALIZED (
    SELECT a.key, a.nonce, a.lessee, a.ttl, a.request, a.place
    FROM patience,
        unnest($1, $2, $3, $4, $5) WITH ORDINALITY AS a (key, nonce, lessee, ttl, request, place)
        JOIN "lease" l USING (key)
    WHERE l.ends IS NULL AND l.until <= clock_timestamp()
        AND l.granted <> a.nonce AND l.last IS DISTINCT FROM a.nonce
    FOR UPDATE OF l SKIP LOCKED)
UPDATE "lease" l SET
    token = greatest(l.token + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint),
    last = l.granted, granted = f.nonce, request = f.request, lessee = f.lessee,
    ends = clock_timestamp() + f.ttl * interval '1 microsecond',
    beat = 0, evicted = NULL, only_for = NULL, waits = false
FROM free f
WHERE l.key = f.key
RETURNING f.place, l.token, l.attributes::text AS attributes
