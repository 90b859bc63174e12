-- Grants a key whose last grant was released. Without a row in the answer, `obtain.sql` decides.
-- $1 key, $2 nonce, $3 lessee, $4 ttl in microseconds, $5 number of the request, $6 lock timeout.
-- PostgreSQL plans each statement anew, so the usual case has this short statement.
UPDATE "lease" SET
    token = greatest(token + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint),
    last = granted, granted = $2, request = $5, lessee = $3,
    ends = clock_timestamp() + $4 * interval '1 microsecond',
    beat = 0, evicted = NULL, only_for = NULL, waits = false
WHERE key = $1
    -- PostgreSQL evaluates these conditions again for a changed row. Without a change, none becomes false.
    AND ends IS NULL AND until <= clock_timestamp()
    AND granted <> $2 AND last IS DISTINCT FROM $2
    AND set_config('lock_timeout', $6, true) IS NOT NULL
RETURNING token, attributes::text AS attributes
