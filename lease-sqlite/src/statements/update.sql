-- Changes attributes under the current grant, if they are as expected. From then on, the record is lasting.
UPDATE lease SET
    attributes = json_patch(attributes, :patch),
    record = 'lasting'
WHERE key = :key
    AND nonce = :nonce
    AND token = :token
    AND ends > boot_time()
    AND meets(attributes, :expected)
