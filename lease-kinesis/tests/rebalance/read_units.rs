//! What reads would cost on `DynamoDB`, in halves of its read units. Sizes of rows are estimated.
//!
//! See "Read consumption" in the `DynamoDB` developer guide: a consistent read of 4 KB costs one unit, and an
//! eventually consistent read costs one half. A list reads all rows on end. lease-dynamodb reads a single key
//! with consistency, and lists and reads of several keys without.

use lease_core::store::LeaseRecord;
use lease_core::{Attributes, Value};

/// Of a row up to 4 KB.
pub(crate) const CONSISTENT: u64 = 2;

pub(crate) fn of_keys(records: &[Option<&LeaseRecord>]) -> u64 {
    let pages = |record: Option<&LeaseRecord>| record.map_or(1, size).div_ceil(PAGE);
    match records {
        [only] => pages(*only) * CONSISTENT,
        all => all.iter().map(|record| pages(*record)).sum(),
    }
}

pub(crate) fn of_list(records: &[&LeaseRecord]) -> u64 {
    records.iter().map(|record| size(record)).sum::<u64>().div_ceil(PAGE)
}

fn size(record: &LeaseRecord) -> u64 {
    LEASE + record.key.as_str().len() as u64 + of_attributes(&record.attributes)
}

fn of_attributes(attributes: &Attributes) -> u64 {
    attributes.iter().map(|(name, value)| name.len() as u64 + of_value(value)).sum()
}

fn of_value(value: &Value) -> u64 {
    match value {
        Value::Text(text) => text.len() as u64,
        Value::Bytes(bytes) => bytes.len() as u64,
        Value::Bool(_) | Value::Null => 1,
        Value::List(values) => 3 + values.iter().map(|value| 1 + of_value(value)).sum::<u64>(),
        // A number has at most 21 bytes.
        _ => 21,
    }
}

const PAGE: u64 = 4096;

/// The columns of a lease under a session: nonce, tokens, holder and key of the session, numbers.
const LEASE: u64 = 250;
