-- Reads the rows of several keys, also of deleted records and released keys: a claim under a session names the
-- token of its row. $1 keys.
SELECT CASE WHEN h.ends > clock_timestamp() THEN 'held' ELSE 'free' END AS verdict,
    h.token, h.request, h.lessee,
    CASE WHEN isfinite(h.ends) THEN
        (extract(epoch FROM h.ends - clock_timestamp()) * 1000000)::bigint END AS remaining,
    h.attributes::text AS attributes, h.key,
    h.parent, h.parent_token, h.token IS NOT NULL AND h.ends IS NULL AS ended,
    CASE WHEN h.until > clock_timestamp() THEN (extract(epoch FROM
        least(h.until, clock_timestamp() + interval '1 year') - clock_timestamp()) * 1000000)::bigint
        END AS reserved, h.only_for
FROM "lease" h WHERE h.key = ANY($1)
