-- Sets an attribute to the next number, and creates the record if it is absent.
INSERT INTO lease AS l (key, boot, record, attributes)
VALUES (:key, boot_id(), 'lasting', :attributes)
ON CONFLICT (key) DO UPDATE SET
    record = 'lasting',
    attributes = json_patch(l.attributes, excluded.attributes)
