//! A register in the memory of one process.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use lease_core::store::{BootClock, Freed, ServerClock};
use lease_core::{LeaseKey, StoreError};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::yield_now;

use crate::record::Record;
use crate::register::{Register, Replaced, Version, Versioned, Versions};

/// Keeps records in the memory of this process. Clones share the records.
///
/// Each request yields once before it is applied, so that requests of two tasks alternate.
#[derive(Debug, Clone)]
pub struct MemoryRegister {
    versions: Versions,
    records: Arc<Mutex<Records>>,
    changes: watch::Sender<()>,
    clock: Option<Arc<ServerClock>>,
}

#[derive(Debug, Default)]
struct Records {
    /// The number of the last write of any key.
    last: u64,
    by_key: BTreeMap<LeaseKey, (u64, Record)>,
}

impl MemoryRegister {
    /// A register whose versions are opaque.
    pub fn opaque() -> Self {
        Self::with(Versions::Opaque)
    }

    /// A register whose versions grow, also after a key was deleted.
    pub fn growing() -> Self {
        Self::with(Versions::Growing)
    }

    fn with(versions: Versions) -> Self {
        let (records, changes) = (Arc::default(), watch::Sender::new(()));
        Self { versions, records, changes, clock: None }
    }

    /// The same register, whose answers have dates.
    #[must_use]
    pub fn with_dates(self) -> Self {
        let clock = ServerClock::new(Arc::new(BootClock::new()), 0.01);
        Self { clock: Some(Arc::new(clock)), ..self }
    }

    /// Dates an answer. The service's time is lease time, counted from another year.
    fn date(&self) {
        if let Some(clock) = &self.clock {
            let now = clock.clock().now();
            clock.add_answer(now, now, 1_800_000_000 + now.as_nanos() / 1_000_000_000);
        }
    }

    /// Deletes the record of `key`, as an operator would.
    pub fn delete(&self, key: &LeaseKey) {
        let mut records = self.records.lock();
        records.last += 1;
        records.by_key.remove(key);
        drop(records);
        self.changes.send_replace(());
    }

    fn get(&self, key: &LeaseKey) -> Option<Versioned> {
        let records = self.records.lock();
        records.by_key.get(key).map(|(number, record)| self.versioned(*number, record))
    }

    fn versioned(&self, number: u64, record: &Record) -> Versioned {
        Versioned { record: record.clone(), version: self.version(number) }
    }

    fn version(&self, number: u64) -> Version {
        match self.versions {
            Versions::Growing => number.into(),
            Versions::Opaque => Version::new(format!("{:x}", number.wrapping_mul(ODD))),
        }
    }
}

#[async_trait]
impl Register for MemoryRegister {
    async fn read(&self, key: &LeaseKey) -> Result<Option<Versioned>, StoreError> {
        yield_now().await;
        self.date();
        Ok(self.get(key))
    }

    async fn replace(
        &self,
        key: &LeaseKey,
        expected: Option<&Version>,
        record: &Record,
    ) -> Result<Replaced, StoreError> {
        yield_now().await;
        self.date();
        let mut records = self.records.lock();
        let found = records.by_key.get(key).map(|(number, _)| self.version(*number));
        if found.as_ref() != expected {
            return Ok(Replaced::Conflict);
        }
        records.last += 1;
        let number = records.last;
        records.by_key.insert(key.clone(), (number, record.clone()));
        drop(records);
        self.changes.send_replace(());
        Ok(Replaced::Done(self.version(number)))
    }

    fn list(&self, prefix: &str) -> BoxStream<'_, Result<(LeaseKey, Versioned), StoreError>> {
        let records = self.records.lock();
        let of_prefix = records.by_key.iter().filter(|(key, _)| key.as_str().starts_with(prefix));
        let listed: Vec<_> = of_prefix
            .map(|(key, (number, record))| Ok((key.clone(), self.versioned(*number, record))))
            .collect();
        stream::iter(listed).boxed()
    }

    async fn changed(&self, key: &LeaseKey, seen: Option<&Version>) -> Result<Freed, StoreError> {
        let (register, key, seen) = (self.clone(), key.clone(), seen.cloned());
        let mut changes = self.changes.subscribe();
        Ok(Freed::when(async move {
            while register.get(&key).map(|versioned| versioned.version) == seen {
                // `register` keeps the sender, so this does not fail.
                let _changed = changes.changed().await;
            }
        }))
    }

    fn versions(&self) -> Versions {
        self.versions
    }

    fn clock(&self) -> Option<&ServerClock> {
        self.clock.as_deref()
    }
}

/// Multiplied by this, numbers get another order, and stay different.
const ODD: u64 = 0x9E37_79B9_7F4A_7C15;
