-- Like list.sql, but without attributes. The reader keeps only the held keys.
-- $1 the prefix, or the last key of the page before; $2 the last key of the page before, or NULL; $3 limit.
SELECT CASE WHEN h.ends > clock_timestamp() THEN 'held' ELSE 'none' END AS verdict,
    h.token, h.request, h.lessee,
    CASE WHEN isfinite(h.ends) THEN
        (extract(epoch FROM h.ends - clock_timestamp()) * 1000000)::bigint END AS remaining,
    '{}' AS attributes, h.key, h.parent, h.parent_token,
    false AS ended, NULL::bigint AS reserved, NULL::text AS only_for
FROM "lease" h WHERE h.key >= $1 AND h.key IS DISTINCT FROM $2
ORDER BY h.key LIMIT $3
