-- One row for each key that is held or reserved, has a record, or has a grant that is still remembered.
CREATE TABLE lease (
    key         TEXT PRIMARY KEY NOT NULL,
    -- The boot of the machine to which the times of this row belong.
    boot        TEXT NOT NULL,
    -- NULL before the first grant.
    token       INTEGER CHECK (token BETWEEN 0 AND 9007199254740991),
    -- The current grant. NULL if the last grant was released.
    nonce       TEXT,
    request     INTEGER,
    lessee      TEXT,
    -- The last ttl of the grant, and the boot time at which its lease expires, both in microseconds.
    ttl         INTEGER,
    ends        INTEGER,
    beat        INTEGER,
    evicted     INTEGER NOT NULL DEFAULT 0,
    -- The grant that was released last, and the boot time of its release.
    last        TEXT,
    last_lessee TEXT,
    freed       INTEGER,
    -- The reservation: its length, the boot time of its end, and its only lessee, if any.
    reserved    INTEGER,
    until       INTEGER,
    only_for    TEXT,
    -- A 'lasting' record stays until it is deleted. A row with 'temporary' or 'deleted' is removed later.
    record      TEXT NOT NULL CHECK (record IN ('temporary', 'lasting', 'deleted')),
    -- A JSON object. A value is an array: ["S", "text"], ["N", "1.5"], ["NULL"] and so on.
    attributes  TEXT NOT NULL DEFAULT '{}',
    -- The session of the grant, if `ends` is the largest integer: its key and its token.
    parent       TEXT,
    parent_token INTEGER,
    CHECK ((nonce IS NULL) = (ends IS NULL)),
    CHECK (ends IS NULL OR (token IS NOT NULL AND lessee IS NOT NULL AND ttl >= 0)),
    CHECK (until IS NULL OR reserved >= 0)
) STRICT;

-- The largest token of the rows that were removed. Tokens of new rows are larger.
CREATE TABLE floor (
    id    INTEGER PRIMARY KEY CHECK (id = 1),
    token INTEGER NOT NULL
) STRICT;
INSERT INTO floor (id, token) VALUES (1, 0);

CREATE TRIGGER lease_removed AFTER DELETE ON lease BEGIN
    UPDATE floor SET token = max(token, coalesce(old.token, 0)) WHERE id = 1;
END;

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
