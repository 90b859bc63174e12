//! Items that other programs write, and so do not carry this crate's signs of life.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use lease_core::{LeaseKey, StoreError, StoreErrorKind};

use crate::column::Columns;
use crate::parts::{RawItem, from_dynamodb, told};

/// An item of another program as a whole: any change of it may be a sign of life.
#[derive(Debug, Clone)]
pub(crate) struct Foreign {
    /// All columns but the key.
    pub(crate) columns: BTreeMap<String, AttributeValue>,
    pub(crate) digest: Digest,
}

/// Tells two items apart: an item may have 400 KB, and thousands are watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Digest(u64);

impl Foreign {
    /// `raw` as a whole, where its holder's signs of life cannot be told from other columns.
    pub(crate) fn of(raw: &RawItem, key_column: &str) -> Self {
        let columns: BTreeMap<_, _> = raw
            .iter()
            .filter(|(name, _)| *name != key_column)
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let mut hasher = DefaultHasher::new();
        for (name, value) in &columns {
            name.hash(&mut hasher);
            // A `Value` is sorted, as an `AttributeValue` is not.
            match from_dynamodb(value.clone()) {
                Ok(value) => format!("{value:?}").hash(&mut hasher),
                Err(_unreadable) => format!("{value:?}").hash(&mut hasher),
            }
        }
        Self { columns, digest: Digest(hasher.finish()) }
    }
}

/// Columns that Amazon's DynamoDB lock client writes, and this crate does not.
///
/// Their names are constants of `AmazonDynamoDBLockClient`.
/// <https://github.com/awslabs/amazon-dynamodb-lock-client>
const LOCK_CLIENT: [&str; 2] = ["recordVersionNumber", "isReleased"];

/// Those that this table does not use for the lease itself.
pub(crate) fn lock_client_columns(columns: &Columns) -> impl Iterator<Item = &'static str> {
    LOCK_CLIENT.into_iter().filter(|name| !columns.reserves(name))
}

/// How long Amazon's lock client lets an item stay unchanged before it takes it.
pub(crate) fn lock_client_ttl(raw: &RawItem, columns: &Columns) -> Option<Duration> {
    lock_client_columns(columns).find(|name| raw.contains_key(*name))?;
    let millis = raw.get("leaseDuration")?.as_s().ok()?.parse().ok()?;
    Some(Duration::from_millis(millis))
}

/// Refuses an item that Amazon's lock client has written.
pub(crate) fn of_lock_client(key: &LeaseKey, table: &str, column: &str) -> StoreError {
    told(
        StoreErrorKind::Misconfigured,
        format!(
            "item {:?} of table {table} has the column {column:?} of Amazon's DynamoDB lock \
             client, which does not heed this store's leases: stop the lock client and remove its \
             columns {LOCK_CLIENT:?}, or build the store `with_lock_client_items()`",
            key.as_str()
        ),
    )
}
