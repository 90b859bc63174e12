-- Brings a file of version 1 to version 2. Running processes of version 1 can still use the file.
ALTER TABLE lease ADD COLUMN parent TEXT;
ALTER TABLE lease ADD COLUMN parent_token INTEGER;
