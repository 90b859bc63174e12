-- Reads the holder of a key. $1 key.
SELECT 'held' AS verdict, h.token, h.request, h.lessee,
    CASE WHEN isfinite(h.ends) THEN
        (extract(epoch FROM h.ends - clock_timestamp()) * 1000000)::bigint END AS remaining,
    '{}' AS attributes, h.parent, h.parent_token
FROM "lease" h WHERE h.key = $1 AND h.ends > clock_timestamp()
