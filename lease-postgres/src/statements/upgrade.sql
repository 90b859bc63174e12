-- Adds the columns that the tables of earlier versions lack. PostgreSQL does not rewrite the rows.
ALTER TABLE "lease"
    ADD COLUMN IF NOT EXISTS parent text,
    ADD COLUMN IF NOT EXISTS parent_token bigint,
    ADD COLUMN IF NOT EXISTS queue jsonb
