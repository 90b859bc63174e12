-- Adds the columns that the tables of earlier versions lack. PostgreSQL does not rewrite the rows.
-- While the statement waits for the lock of the table, all requests wait behind it. So the wait is short, and the
-- client tries again.
-- The tag of the quotes is longer than a name can be, so the name of the table does not contain it.
DO $the_lock_timeout_ends_with_the_transaction_of_this_one_statement$
BEGIN
    PERFORM set_config('lock_timeout', '200ms', true);
    ALTER TABLE "lease"
        ADD COLUMN IF NOT EXISTS parent text,
        ADD COLUMN IF NOT EXISTS parent_token bigint,
        ADD COLUMN IF NOT EXISTS queue jsonb;
END
$the_lock_timeout_ends_with_the_transaction_of_this_one_statement$
