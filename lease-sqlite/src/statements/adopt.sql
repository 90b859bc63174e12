-- Replaces a grant that was handed over by a new grant with a new token.
UPDATE lease SET
    boot = boot_id(),
    token = max(token + 1, wall_time()),
    last = nonce,
    last_lessee = lessee,
    nonce = :nonce,
    request = :request,
    lessee = :lessee,
    ttl = :ttl,
    ends = iif(:parent IS NULL, boot_time() + :ttl, 9223372036854775807),
    parent = :parent,
    parent_token = :parent_token,
    beat = 0,
    record = iif(:attributes = '{}', record, 'lasting'),
    attributes = json_patch(attributes, :attributes)
WHERE key = :key
    AND nonce = :handed
    AND token = :token
    AND ends > boot_time()
    AND evicted = 0
RETURNING token, attributes
