-- Grants a key in the state that a client has read: the token is the same, and the last grant has ended, or is
-- one under a session that has ended. No condition depends on the time. If a row refuses the claim, the row also
-- refuses a late copy of the claim.
INSERT INTO lease AS l (
    key, boot, token, nonce, request, lessee, ttl, ends, parent, parent_token, beat, record, attributes
)
SELECT
    :key, boot_id(), max(wall_time(), (SELECT token + 1 FROM floor)), :nonce, :request, :lessee,
    :ttl, iif(:parent IS NULL, boot_time() + :ttl, 9223372036854775807), :parent, :parent_token, 0,
    iif(:attributes = '{}', 'temporary', 'lasting'), :attributes
-- The row with the token that the client has read may have been removed.
WHERE :seen IS NULL OR EXISTS (SELECT 1 FROM lease WHERE key = :key)
ON CONFLICT (key) DO UPDATE SET
    boot = boot_id(),
    token = max(coalesce(l.token, 0) + 1, excluded.token),
    last = coalesce(l.nonce, l.last),
    last_lessee = iif(l.nonce IS NULL, l.last_lessee, l.lessee),
    nonce = excluded.nonce,
    request = excluded.request,
    lessee = excluded.lessee,
    ttl = excluded.ttl,
    ends = excluded.ends,
    parent = excluded.parent,
    parent_token = excluded.parent_token,
    beat = 0,
    evicted = 0,
    reserved = NULL,
    until = NULL,
    only_for = NULL,
    record = iif(l.record = 'lasting', 'lasting', excluded.record),
    attributes = json_patch(l.attributes, excluded.attributes)
WHERE l.token IS :seen
    AND iif(
        :former IS NULL,
        l.ends IS NULL,
        l.ends = 9223372036854775807 AND l.parent = :former AND l.parent_token = :former_token
    )
RETURNING token, attributes
