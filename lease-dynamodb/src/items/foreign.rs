//! Items of other programs, without this crate's token and beat.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use lease_aws::table_client::{RawItem, from_dynamodb, store_error};
use lease_core::{LeaseKey, StoreError, StoreErrorKind};

use super::column::{Column, Columns};

/// A change of any column may show that the holder is still running.
#[derive(Debug, Clone)]
pub(crate) struct ForeignItem {
    /// All columns except the key.
    pub(crate) columns: BTreeMap<String, AttributeValue>,
    pub(crate) digest: Digest,
    pub(crate) is_of_lock_client: bool,
}

/// A short hash of an item's columns: an item may have 400 KB, and a store observes thousands of
/// items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Digest(u64);

impl ForeignItem {
    pub(crate) fn of(raw: &RawItem, columns: &Columns) -> Self {
        let key_column = columns.name(Column::Key);
        let is_of_lock_client = lock_client_columns(columns).any(|name| raw.contains_key(name));
        let columns: BTreeMap<_, _> = raw
            .iter()
            .filter(|(name, _)| *name != key_column)
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let mut hasher = DefaultHasher::new();
        for (name, value) in &columns {
            name.hash(&mut hasher);
            // The maps in a `Value` are sorted. The maps in an `AttributeValue` are not.
            match from_dynamodb(value.clone()) {
                Ok(value) => format!("{value:?}").hash(&mut hasher),
                Err(_unreadable) => format!("{value:?}").hash(&mut hasher),
            }
        }
        Self { columns, digest: Digest(hasher.finish()), is_of_lock_client }
    }

    /// Returns columns whose values prove that the item is unchanged. `None` if the item has more
    /// columns than a condition can contain.
    ///
    /// For items of the lock client, the version suffices: the client changes the version with each
    /// grant and renewal.
    pub(crate) fn proof(&self, columns: &Columns) -> Option<Vec<(&str, &AttributeValue)>> {
        let all = self.columns.iter().map(|(name, value)| (name.as_str(), value));
        if self.columns.len() <= MAX_COLUMNS {
            return Some(all.collect());
        }
        let version = lock_client_columns(columns).find(|name| *name == VERSION)?;
        Some(vec![(version, self.columns.get(version)?)])
    }
}

/// The lock client's own columns. None of the names is a reserved word of DynamoDB.
/// <https://github.com/awslabs/amazon-dynamodb-lock-client>
const LOCK_CLIENT: [&str; 2] = [VERSION, "isReleased"];

const VERSION: &str = "recordVersionNumber";

/// The largest number of an item's columns in one condition. DynamoDB allows 4 KB and 300
/// operators, and a column needs up to 28 bytes and two operators.
/// <https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html>
pub(crate) const MAX_COLUMNS: usize = 110;

/// Omits columns that this table uses for the lease itself.
pub(crate) fn lock_client_columns(columns: &Columns) -> impl Iterator<Item = &'static str> {
    LOCK_CLIENT.into_iter().filter(|name| !columns.contains(name))
}

pub(crate) fn lock_client_ttl(raw: &RawItem, columns: &Columns) -> Option<Duration> {
    lock_client_columns(columns).find(|name| raw.contains_key(*name))?;
    let millis = raw.get("leaseDuration")?.as_s().ok()?.parse().ok()?;
    Some(Duration::from_millis(millis))
}

pub(crate) fn too_many_columns_error(
    key: &LeaseKey,
    table: &str,
    foreign: &ForeignItem,
) -> StoreError {
    store_error(
        StoreErrorKind::Refused,
        format!(
            "item {:?} of table {table} belongs to another program and has {} columns. The store \
             can take over items with at most {MAX_COLUMNS}: delete the item, or remove columns",
            key.as_str(),
            foreign.columns.len()
        ),
    )
}

pub(crate) fn lock_client_error(key: &LeaseKey, table: &str, column: &str) -> StoreError {
    store_error(
        StoreErrorKind::Misconfigured,
        format!(
            "item {:?} of table {table} has the column {column:?} of Amazon's DynamoDB lock \
             client, which ignores this store's leases: stop the lock client and remove its \
             columns {LOCK_CLIENT:?}, or build the store `with_lock_client_items()`",
            key.as_str()
        ),
    )
}
