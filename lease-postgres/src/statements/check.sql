-- Reads the settings of the server and the table. $1 the name of the table.
SELECT to_regclass($1)::text AS found,
    coalesce((SELECT relpersistence::text FROM pg_class WHERE oid = to_regclass($1)), '') AS persistence,
    current_user::text AS role,
    current_database()::text AS database,
    current_setting('server_version_num')::bigint AS version,
    pg_is_in_recovery() OR current_setting('transaction_read_only')::boolean AS read_only,
    current_setting('synchronous_commit') AS synchronous_commit,
    current_setting('fsync') AS fsync,
    (SELECT setting::bigint FROM pg_settings WHERE name = 'lock_timeout') AS lock_timeout,
    current_setting('full_page_writes') AS full_page_writes,
    current_setting('default_transaction_isolation') AS isolation,
    (SELECT pg_encoding_to_char(encoding)::text FROM pg_database WHERE datname = current_database())
        AS encoding,
    ARRAY(
        SELECT r FROM unnest('{SELECT,INSERT,UPDATE}'::text[]) r
        WHERE NOT has_table_privilege(to_regclass($1), r)) AS missing_rights,
    ARRAY(
        SELECT c FROM unnest('{key,token,granted,request,lessee,ends,beat,evicted,last,until,only_for,waits,kept,attributes,parent,parent_token,queue}'::text[]) c
        WHERE NOT EXISTS (
            SELECT FROM pg_attribute
            WHERE attrelid = to_regclass($1) AND attname = c AND NOT attisdropped))
        AS missing_columns
