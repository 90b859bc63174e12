-- Brings a file of version 1 to version 2. Running processes of version 1 can still use the file.
ALTER TABLE lease ADD COLUMN parent TEXT;
ALTER TABLE lease ADD COLUMN parent_token INTEGER;

-- The claims that wait for a key, in turn.
CREATE TABLE waiter (
    -- The order of arrival.
    place      INTEGER PRIMARY KEY AUTOINCREMENT,
    key        TEXT NOT NULL,
    nonce      TEXT NOT NULL,
    -- The largest number of the claim's requests that have arrived.
    request    INTEGER NOT NULL,
    lessee     TEXT NOT NULL,
    ttl        INTEGER NOT NULL CHECK (ttl >= 0),
    attributes TEXT NOT NULL,
    -- The boot time at which the place expires, unless it is renewed.
    boot       TEXT NOT NULL,
    ends       INTEGER NOT NULL,
    UNIQUE (key, nonce)
) STRICT;
