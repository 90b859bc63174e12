-- Adds one to an attribute, and creates the row and the attribute if they are absent. Returns no row if the
-- attribute is not a whole number.
-- $1 key, $2 name of the attribute, $3 lock timeout.
WITH patience AS MATERIALIZED (SELECT set_config('lock_timeout', $3, true))
INSERT INTO "lease" AS l (key, kept, attributes)
SELECT $1, true, jsonb_build_object($2, jsonb_build_object('N', '1')) FROM patience
ON CONFLICT (key) DO UPDATE SET
    kept = true,
    attributes = l.attributes || jsonb_build_object($2, jsonb_build_object(
        'N', (coalesce(l.attributes -> $2 ->> 'N', '0')::bigint + 1)::text))
WHERE NOT l.attributes ? $2 OR l.attributes -> $2 ->> 'N' ~ '^-?[0-9]{1,18}$'
RETURNING (attributes -> $2 ->> 'N')::bigint AS count
