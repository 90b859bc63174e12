-- Grants a free key. Returns no row, and writes nothing, if the key is not free for this claim.
INSERT INTO lease AS l (key, boot, token, nonce, request, lessee, ttl, ends, beat, record, attributes)
VALUES (
    :key, boot_id(), max(wall_time(), (SELECT token + 1 FROM floor)), :nonce, :request, :lessee,
    :ttl, boot_time() + :ttl, 0, iif(:attributes = '{}', 'temporary', 'lasting'), :attributes
)
ON CONFLICT (key) DO UPDATE SET
    boot = boot_id(),
    token = max(coalesce(l.token, 0) + 1, excluded.token),
    nonce = excluded.nonce,
    request = excluded.request,
    lessee = excluded.lessee,
    ttl = excluded.ttl,
    ends = boot_time() + excluded.ttl,
    beat = 0,
    evicted = 0,
    reserved = NULL,
    until = NULL,
    only_for = NULL,
    record = iif(l.record = 'lasting', 'lasting', excluded.record),
    attributes = json_patch(l.attributes, excluded.attributes)
WHERE l.boot = boot_id()
    AND (l.ends IS NULL OR l.ends <= boot_time())
    -- A late duplicate is refused if the grant of its claim has expired, or is the last released grant.
    AND l.nonce IS NOT excluded.nonce
    AND l.last IS NOT excluded.nonce
    AND (l.until IS NULL OR l.until <= boot_time() OR l.only_for IS excluded.lessee)
RETURNING token, attributes
