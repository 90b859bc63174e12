-- Deletes at most $2 rows that were not used for $1 microseconds. Rows of records remain.
DELETE FROM "lease" WHERE key IN (
    SELECT h.key FROM "lease" h
    WHERE NOT h.kept
        AND greatest(h.ends, h.until) < clock_timestamp() - $1 * interval '1 microsecond'
    LIMIT $2
    FOR UPDATE SKIP LOCKED)
RETURNING key
