-- Reads a page of records and held keys, in the order of the keys. The reader stops at the first key that does
-- not start with its prefix.
-- $1 the prefix, or the last key of the page before; $2 the last key of the page before, or NULL; $3 limit.
SELECT CASE
        WHEN h.ends > clock_timestamp() THEN 'held'
        WHEN h.kept THEN 'free'
        ELSE 'none'
    END AS verdict, h.token, h.request, h.lessee,
    CASE WHEN isfinite(h.ends) THEN
        (extract(epoch FROM h.ends - clock_timestamp()) * 1000000)::bigint END AS remaining,
    h.attributes::text AS attributes, h.key,
    h.parent, h.parent_token, h.token IS NOT NULL AND h.ends IS NULL AS ended,
    CASE WHEN h.until > clock_timestamp() THEN (extract(epoch FROM
        least(h.until, clock_timestamp() + interval '1 year') - clock_timestamp()) * 1000000)::bigint
        END AS reserved, h.only_for
FROM "lease" h WHERE h.key >= $1 AND h.key IS DISTINCT FROM $2
ORDER BY h.key LIMIT $3
