-- Reads the record of a key. A held key always has a record. $1 key.
SELECT CASE WHEN h.ends > clock_timestamp() THEN 'held' ELSE 'free' END AS verdict,
    h.token, h.request, h.lessee,
    CASE WHEN isfinite(h.ends) THEN
        (extract(epoch FROM h.ends - clock_timestamp()) * 1000000)::bigint END AS remaining,
    h.attributes::text AS attributes
FROM "lease" h WHERE h.key = $1 AND (h.kept OR h.ends > clock_timestamp())
