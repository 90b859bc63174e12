//! Records that a producer put into one: taken apart.

use crate::position::RecordNumber;
use crate::record::Record;
use crate::shard::HashKeyRange;
use crate::source::RawRecord;

/// The records in `raw`.
pub(crate) fn taken_apart(raw: RawRecord, hash_keys: HashKeyRange) -> Vec<Record> {
    let _ = hash_keys;
    let number = RecordNumber::new(raw.sequence);
    let mut record = Record::new(number, raw.partition_key, raw.data);
    record.arrived = raw.arrived;
    vec![record]
}
