-- Creates a record, unless the key has a record or is held. Returns a row if the record was created.
-- $1 key, $2 attributes, $3 lock timeout.
WITH patience AS MATERIALIZED (SELECT set_config('lock_timeout', $3, true))
INSERT INTO "lease" AS l (key, kept, attributes)
SELECT $1, true, $2::jsonb FROM patience
WHERE NOT EXISTS (
    SELECT FROM "lease" h WHERE h.key = $1 AND (h.kept OR h.ends > clock_timestamp()))
ON CONFLICT (key) DO UPDATE SET kept = true, attributes = $2::jsonb
WHERE NOT l.kept AND (l.ends IS NULL OR l.ends <= clock_timestamp())
RETURNING l.key
