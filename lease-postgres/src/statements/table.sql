-- Creates the table of leases. If the statement runs again, it changes nothing.
-- fillfactor: a heartbeat writes the new version of its row beside the old version, without a change of the
-- index. An index on a column that heartbeats write would prevent this.
CREATE TABLE IF NOT EXISTS "lease" (
    key text COLLATE "C" PRIMARY KEY,         -- sorted by bytes, so that a prefix is one range of keys
    token bigint,                             -- the token of the last grant
    granted uuid,                             -- the nonce of the last grant
    request bigint,                           -- the number of the request that was granted, within its claim
    lessee text,                              -- the lessee of the last grant
    ends timestamptz,                         -- the expiry of the last grant; NULL after its release
    beat bigint,                              -- the number of the last grant's last heartbeat
    evicted uuid,                             -- the nonce of a grant that an operator has evicted
    last uuid,                                -- the nonce of the grant that was released before the last grant
    until timestamptz,                        -- the end of the reservation, or the time of the last release
    only_for text,                            -- which lessee may obtain the key before `until`; NULL: none
    waits boolean NOT NULL DEFAULT false,     -- a client waits, so the release sends a notification
    kept boolean NOT NULL DEFAULT false,      -- the key has a record, even while it has no holder
    attributes jsonb NOT NULL DEFAULT '{}',   -- the attributes of the record
    parent text,                              -- the session of the last grant, if `ends` is infinity: its key
    parent_token bigint,                      -- and its token
    queue jsonb                               -- the claims that wait for the key, in turn; NULL: none
) WITH (fillfactor = 50);
