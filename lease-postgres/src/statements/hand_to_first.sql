-- Grants the key of a grant to the first waiter whose place has not expired. If there is none, or if the key has
-- another grant, the statement changes nothing, and `hand_on.sql` follows. PostgreSQL plans this statement in a
-- third of the time.
-- $1 key, $2 nonce, $3 token, $4 lock timeout.
WITH patience AS MATERIALIZED (SELECT set_config('lock_timeout', $4, true)),
-- The queue is a column of the locked row, so no waiter can join or leave between the check and the write.
seen AS MATERIALIZED (
    SELECT h.queue FROM patience, "lease" h
    WHERE h.key = $1 AND h.granted = $2 AND h.token = $3 AND h.ends IS NOT NULL FOR UPDATE OF h),
-- Reads the clock when the row is locked.
here AS MATERIALIZED (
    SELECT jsonb_path_query_array(s.queue, '$[*] ? (@.nonce != $own && @.until > $now)', jsonb_build_object(
        'own', $2, 'now', extract(epoch FROM clock_timestamp()) * 1000000)) AS places
    FROM seen s)
UPDATE "lease" l SET
    token = greatest(l.token + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint),
    last = l.granted,
    granted = (h.places #>> '{0,nonce}')::uuid,
    request = (h.places #>> '{0,request}')::bigint,
    lessee = h.places #>> '{0,lessee}',
    ends = clock_timestamp() + (h.places #>> '{0,ttl}')::bigint * interval '1 microsecond',
    beat = 0, evicted = NULL, until = NULL, only_for = NULL, queue = nullif(h.places - 0, '[]')
FROM here h
WHERE l.key = $1 AND h.places <> '[]'
-- A notification is too short for attributes. Without a token, it lets the waiter ask.
RETURNING l.queue IS NOT NULL AS waits,
    CASE WHEN h.places #>> '{0,client}' IS NOT NULL THEN
        pg_notify(h.places #>> '{0,client}', format('%s %s %s',
            l.granted, l.request, CASE WHEN l.attributes = '{}' THEN l.token ELSE 0 END))::text
    END
