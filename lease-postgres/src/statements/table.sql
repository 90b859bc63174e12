-- Creates the table of leases. If the statement runs again, it changes nothing.
-- fillfactor: a heartbeat writes the new version of its row beside the old one, without touching the index.
-- A further index on a column that heartbeats write would prevent this.
CREATE TABLE IF NOT EXISTS "lease" (
    key text COLLATE "C" PRIMARY KEY,         -- in the order of its bytes, for prefixes
    token bigint,                             -- of the last grant
    granted uuid,                             -- the nonce of the last grant
    request bigint,                           -- the number of the request that was granted, within its claim
    lessee text,                              -- of the last grant
    ends timestamptz,                         -- when the last grant expires; NULL once it was released
    beat bigint,                              -- the number of the last heartbeat
    evicted uuid,                             -- the nonce of a grant that an operator has evicted
    last uuid,                                -- the nonce of the grant that was released before the last grant
    until timestamptz,                        -- the end of the reservation, or the time of the last release
    only_for text,                            -- which lessee may obtain the key before `until`; NULL: none
    waits boolean NOT NULL DEFAULT false,     -- a client waits: the release of the grant sends a notification
    kept boolean NOT NULL DEFAULT false,      -- the key has a record, also while it has no holder
    attributes jsonb NOT NULL DEFAULT '{}'    -- of the record
) WITH (fillfactor = 50);
