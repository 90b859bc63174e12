//! A table that counts what a worker reads and writes, for its metrics.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use lease_core::store::{
    Beat, Claim, Freed, Grant, Heartbeat, HeldKey, InTurn, LeaseRecord, LeaseTable, LockStore,
    Obtained, Parent, SessionState, Sessions, Vacancy,
};
use lease_core::{
    Attributes, Change, GrantId, Holder, LeaseKey, Lessee, StoreError, StoreErrorKind, Value,
    Written,
};
use parking_lot::Mutex;

use crate::metrics::TableUse;

/// The requests of one worker.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    rows_read: AtomicU64,
    /// In halves of a unit.
    read_units: AtomicU64,
    writes: AtomicU64,
    write_units: AtomicU64,
    /// The sizes of rows that cost more than one unit. Each heartbeat writes the whole row.
    large: Mutex<HashMap<LeaseKey, u64>>,
}

pub(crate) struct MeteredTable {
    table: Arc<dyn LeaseTable>,
    meter: Arc<Meter>,
}

impl Meter {
    /// Returns the use since the last call.
    pub(crate) fn take(&self) -> TableUse {
        let half_units = self.read_units.load(Ordering::Relaxed);
        // The last half counts when the unit is complete.
        self.read_units.fetch_sub(half_units - half_units % 2, Ordering::Relaxed);
        TableUse {
            rows_read: self.rows_read.swap(0, Ordering::Relaxed),
            read_units: half_units / 2,
            writes: self.writes.swap(0, Ordering::Relaxed),
            write_units: self.write_units.swap(0, Ordering::Relaxed),
        }
    }

    fn read(&self, rows: u64, half_units: u64) {
        self.rows_read.fetch_add(rows, Ordering::Relaxed);
        self.read_units.fetch_add(half_units, Ordering::Relaxed);
    }

    fn read_one(&self, size: u64) {
        self.read(1, size.div_ceil(READ_UNIT).max(1) * 2);
    }

    fn write(&self, key: &LeaseKey) {
        let units = self.large.lock().get(key).copied().unwrap_or(1);
        self.write_units(units);
    }

    /// A change of attributes. The row may have others, so this is the least size.
    fn write_attributes<'a>(
        &self,
        key: &LeaseKey,
        attributes: impl Iterator<Item = (&'a str, &'a Value)>,
    ) {
        let units = size_of(key, attributes).div_ceil(WRITE_UNIT);
        let mut large = self.large.lock();
        if units > 1 {
            large.insert(key.clone(), units);
        } else {
            large.remove(key);
        }
        drop(large);
        self.write_units(units);
    }

    fn write_units(&self, units: u64) {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.write_units.fetch_add(units, Ordering::Relaxed);
    }
}

impl MeteredTable {
    pub(crate) fn new(table: Arc<dyn LeaseTable>, meter: Arc<Meter>) -> Self {
        Self { table, meter }
    }

    fn inner(&self) -> Result<&dyn Sessions, StoreError> {
        let none = || StoreError::new(StoreErrorKind::Unsupported, "this store keeps no sessions");
        self.table.sessions().ok_or_else(none)
    }
}

// All methods must be forwarded: a default method would hide the method of the inner table.
#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl LockStore for MeteredTable {
    async fn obtain(&self, claim: &Claim) -> Result<Obtained, StoreError> {
        self.meter.write(&claim.key);
        self.table.obtain(claim).await
    }

    async fn heartbeat(&self, grant: &Grant, beat: Beat) -> Result<Heartbeat, StoreError> {
        self.meter.write(&grant.key);
        self.table.heartbeat(grant, beat).await
    }

    async fn release(&self, grant: &Grant, reserved: Option<Duration>) -> Result<(), StoreError> {
        self.meter.write(&grant.key);
        self.table.release(grant, reserved).await
    }

    async fn adopt(&self, grant: &Grant, claim: &Claim) -> Result<Obtained, StoreError> {
        self.meter.write(&grant.key);
        self.table.adopt(grant, claim).await
    }

    async fn holder(&self, key: &LeaseKey) -> Result<Option<Holder>, StoreError> {
        self.meter.read_one(0);
        self.table.holder(key).await
    }

    fn heartbeat_all<'a>(
        &'a self,
        beats: &'a [(Grant, Beat)],
    ) -> BoxStream<'a, (usize, Result<Heartbeat, StoreError>)> {
        for (grant, _) in beats {
            self.meter.write(&grant.key);
        }
        self.table.heartbeat_all(beats)
    }

    async fn evict(&self, key: &LeaseKey, grant: &GrantId) -> Result<bool, StoreError> {
        self.meter.write(key);
        self.table.evict(key, grant).await
    }

    fn scan(&self, prefix: &str) -> BoxStream<'_, Result<HeldKey, StoreError>> {
        self.table.scan(prefix)
    }

    async fn watch(&self, key: &LeaseKey) -> Result<Freed, StoreError> {
        self.table.watch(key).await
    }

    fn in_turn(&self) -> Option<&dyn InTurn> {
        self.table.in_turn()
    }

    fn sessions(&self) -> Option<&dyn Sessions> {
        self.table.sessions().map(|_| self as &dyn Sessions)
    }

    fn grain(&self) -> Duration {
        self.table.grain()
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Sessions for MeteredTable {
    async fn obtain_under(&self, claim: &Claim, vacancy: &Vacancy) -> Result<Obtained, StoreError> {
        self.meter.write(&claim.key);
        self.inner()?.obtain_under(claim, vacancy).await
    }

    async fn end_session(&self, session: &Parent) -> Result<SessionState, StoreError> {
        self.meter.write(&session.key);
        self.inner()?.end_session(session).await
    }

    async fn read_all(&self, keys: &[LeaseKey]) -> Vec<Result<Option<LeaseRecord>, StoreError>> {
        let Ok(sessions) = self.inner() else {
            return keys.iter().map(|_| self.inner().map(|_| None)).collect();
        };
        let read = sessions.read_all(keys).await;
        if let [only] = read.as_slice() {
            self.meter.read_one(size(only));
            return read;
        }
        for record in &read {
            self.meter.read(1, size(record).div_ceil(READ_UNIT).max(1));
        }
        read
    }

    async fn count(&self, key: &LeaseKey, name: &str) -> Result<i64, StoreError> {
        self.meter.write(key);
        self.inner()?.count(key, name).await
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl LeaseTable for MeteredTable {
    async fn read(&self, key: &LeaseKey) -> Result<Option<LeaseRecord>, StoreError> {
        let read = self.table.read(key).await;
        self.meter.read_one(size(&read));
        read
    }

    fn list(&self, prefix: &str) -> BoxStream<'_, Result<LeaseRecord, StoreError>> {
        let mut listing = Listing { meter: &self.meter, bytes: 0 };
        self.table.list(prefix).inspect(move |record| listing.add(record)).boxed()
    }

    async fn create(&self, key: &LeaseKey, attributes: &Attributes) -> Result<bool, StoreError> {
        let set = attributes.iter().map(|(name, value)| (name.as_str(), value));
        self.meter.write_attributes(key, set);
        self.table.create(key, attributes).await
    }

    async fn update(&self, grant: &Grant, change: &Change) -> Result<Written, StoreError> {
        self.meter.write_attributes(&grant.key, change.assigned());
        self.table.update(grant, change).await
    }

    async fn transfer(
        &self,
        grant: &Grant,
        to: &Lessee,
        reserved: Duration,
    ) -> Result<Written, StoreError> {
        self.meter.write(&grant.key);
        self.table.transfer(grant, to, reserved).await
    }

    async fn delete(&self, grant: &Grant) -> Result<Written, StoreError> {
        self.meter.write(&grant.key);
        self.table.delete(grant).await
    }
}

impl fmt::Debug for MeteredTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MeteredTable").field("table", &self.table).finish_non_exhaustive()
    }
}

/// A list reads all rows on end, and rounds their sum up.
struct Listing<'a> {
    meter: &'a Meter,
    bytes: u64,
}

impl Listing<'_> {
    fn add(&mut self, record: &Result<LeaseRecord, StoreError>) {
        self.bytes += record.as_ref().map_or(0, size_of_record);
        self.meter.read(1, self.bytes / READ_UNIT);
        self.bytes %= READ_UNIT;
    }
}

impl Drop for Listing<'_> {
    fn drop(&mut self) {
        self.meter.read(0, u64::from(self.bytes > 0));
    }
}

fn size(read: &Result<Option<LeaseRecord>, StoreError>) -> u64 {
    read.as_ref().ok().and_then(Option::as_ref).map_or(0, size_of_record)
}

fn size_of_record(record: &LeaseRecord) -> u64 {
    let attributes = record.attributes.iter().map(|(name, value)| (name.as_str(), value));
    size_of(&record.key, attributes)
}

fn size_of<'a>(key: &LeaseKey, attributes: impl Iterator<Item = (&'a str, &'a Value)>) -> u64 {
    let of_attributes: u64 =
        attributes.map(|(name, value)| length(name) + size_of_value(value)).sum();
    LEASE + length(key.as_str()) + of_attributes
}

fn size_of_value(value: &Value) -> u64 {
    match value {
        Value::Text(text) => length(text),
        Value::Bytes(bytes) => u64::try_from(bytes.len()).unwrap_or(u64::MAX),
        Value::Bool(_) | Value::Null => 1,
        Value::List(values) => 3 + values.iter().map(|value| 1 + size_of_value(value)).sum::<u64>(),
        // A number has at most 21 bytes.
        _ => 21,
    }
}

fn length(text: &str) -> u64 {
    u64::try_from(text.len()).unwrap_or(u64::MAX)
}

/// A consistent read of 4 KB, and a write of 1 KB: see "Read and write operations" in the developer guide of `DynamoDB`.
const READ_UNIT: u64 = 4096;
const WRITE_UNIT: u64 = 1024;

/// The columns of a lease under a session: nonce, tokens, holder and key of the session, numbers.
const LEASE: u64 = 250;
