//! The store: both traits, each method a few lines under one lock.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use lease_core::{
    Attributes, Beat, BootClock, Change, Claim, Clock, FencingToken, Freed, Grant, Heartbeat,
    Holder, LeaseKey, LeaseRecord, LeaseTable, Lessee, LockStore, LossCause, Moment, Obtained,
    StoreError, Written, micros_since_1970,
};

use crate::record::{Existence, Record, Verdict};
use crate::shelf::Shelf;
use crate::watch::Watches;

/// Keeps leases in this process. Clones share them.
///
/// Everything that a store promises holds here, so unit tests that pass on it pass for the
/// right reasons; and paused time (`tokio::time::pause`) needs no setting up.
///
/// | what happens | what follows |
/// |---|---|
/// | the process pauses, or the machine is suspended | time goes on: leases run out meanwhile |
/// | the wall clock steps | nothing |
/// | the process ends | all leases end with it; tokens of the next process are larger, unless the wall clock was set back |
/// | a request is doubled | nothing, for a ttl after the release, and for 10 s at least; after another lessee's grant was released, a late duplicate may hold the key for a ttl with nobody behind it; a late update undoes a newer one of the same grant, unless it says what it expects |
///
/// Records that nobody holds and that were not created through the table, nor updated, are
/// forgotten a ttl after they were released; their tokens are not.
#[derive(Debug, Clone)]
pub struct MemoryStore {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    clock: Arc<dyn Clock>,
    shelf: Mutex<Shelf>,
    watches: Watches,
}

impl MemoryStore {
    /// An empty store, whose tokens start at the microseconds since 1970.
    pub fn new() -> Self {
        Self::with(Arc::new(BootClock::new()), micros_since_1970())
    }

    /// An empty store, whose tokens start at 1: for tests that look at them.
    ///
    /// A gate that outlives the process needs tokens that do: use [`new`](Self::new) for that.
    pub fn counting_from_one() -> Self {
        Self::with(Arc::new(BootClock::new()), 0)
    }

    /// An empty store that reads its time from `clock`, and whose tokens start at 1: for
    /// simulations.
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        Self::with(clock, 0)
    }

    fn with(clock: Arc<dyn Clock>, floor: u64) -> Self {
        let shelf = Mutex::new(Shelf::new(floor));
        Self { shared: Arc::new(Shared { clock, shelf, watches: Watches::default() }) }
    }

    /// How many records are kept, deleted ones that are still remembered included.
    pub fn records(&self) -> usize {
        self.open().0.len()
    }

    /// The shelf as it is now, without what has faded.
    fn open(&self) -> (MutexGuard<'_, Shelf>, Moment) {
        let mut shelf = self.shared.shelf.lock().unwrap_or_else(PoisonError::into_inner);
        // Read under the lock, so that time never goes back from one write to the next.
        let now = self.shared.clock.now();
        shelf.sweep(now);
        (shelf, now)
    }

    /// Runs `write` on the record of `grant`, if it still stands.
    fn fenced(&self, grant: &Grant, write: impl FnOnce(&mut Record, Moment) -> Written) -> Written {
        let (mut shelf, now) = self.open();
        let Some(record) = shelf.record_mut(&grant.key) else {
            return Written::Lost(LossCause::Expired);
        };
        if let Err(cause) = record.tenure_of(grant, now) {
            return Written::Lost(cause);
        }
        let written = write(record, now);
        if record.existence == Existence::Deleted {
            shelf.let_fade(&grant.key, now);
        }
        written
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl LockStore for MemoryStore {
    async fn obtain(&self, claim: &Claim) -> Result<Obtained, StoreError> {
        let (mut shelf, now) = self.open();
        let record = shelf.record_or_new(&claim.key, now);
        let attributes = record.attributes.clone();
        Ok(match record.judge(claim, now) {
            Verdict::Free => Obtained::Granted(shelf.grant(claim, now)?, attributes),
            Verdict::AlreadyGranted(token) => Obtained::Granted(claim.granted(token), attributes),
            Verdict::Held(holder) => Obtained::Held(holder),
        })
    }

    async fn heartbeat(&self, grant: &Grant, beat: Beat) -> Result<Heartbeat, StoreError> {
        let (mut shelf, now) = self.open();
        Ok(match shelf.record_mut(&grant.key) {
            Some(record) => record.heartbeat(grant, beat, now),
            None => Heartbeat::Lost(LossCause::Expired),
        })
    }

    async fn release(&self, grant: &Grant, reserved: Option<Duration>) -> Result<(), StoreError> {
        let (mut shelf, now) = self.open();
        let Some(record) = shelf.record_mut(&grant.key) else {
            return Ok(());
        };
        if record.vacate(grant, now) {
            if let Some(reserved) = reserved {
                record.reserve(None, now + reserved);
            }
            drop(shelf);
            self.shared.watches.wake(&grant.key);
        }
        Ok(())
    }

    async fn adopt(&self, grant: &Grant, claim: &Claim) -> Result<Obtained, StoreError> {
        let (mut shelf, now) = self.open();
        let gone = || Holder::new(grant.lessee.clone(), grant.token, Some(Duration::ZERO));
        let Some(record) = shelf.record_mut(&grant.key) else {
            return Ok(Obtained::Held(gone()));
        };
        let attributes = record.attributes.clone();
        if let Verdict::AlreadyGranted(token) = record.judge(claim, now) {
            return Ok(Obtained::Granted(claim.granted(token), attributes));
        }
        match record.tenure_of(grant, now) {
            Ok(tenure) if !tenure.evicted => {
                record.vacate(grant, now);
                Ok(Obtained::Granted(shelf.grant(claim, now)?, attributes))
            }
            _ => Ok(Obtained::Held(record.holder(now).unwrap_or_else(gone))),
        }
    }

    async fn holder(&self, key: &LeaseKey) -> Result<Option<Holder>, StoreError> {
        let (shelf, now) = self.open();
        Ok(shelf.record(key).and_then(|record| record.holder(now)))
    }

    async fn watch(&self, key: &LeaseKey) -> Result<Freed, StoreError> {
        Ok(self.shared.watches.watch(key))
    }
}

#[async_trait]
impl LeaseTable for MemoryStore {
    async fn read(&self, key: &LeaseKey) -> Result<Option<LeaseRecord>, StoreError> {
        let (shelf, now) = self.open();
        Ok(shelf.record(key).and_then(|record| record.seen(key, now)))
    }

    fn list(&self, prefix: &str) -> BoxStream<'_, Result<LeaseRecord, StoreError>> {
        let (shelf, now) = self.open();
        let mut listed: Vec<_> = shelf
            .iter()
            .filter(|(key, _)| key.as_str().starts_with(prefix))
            .filter_map(|(key, record)| record.seen(key, now))
            .collect();
        listed.sort_by(|a, b| a.key.cmp(&b.key));
        stream::iter(listed.into_iter().map(Ok)).boxed()
    }

    async fn create(&self, key: &LeaseKey, attributes: &Attributes) -> Result<bool, StoreError> {
        let (mut shelf, now) = self.open();
        if shelf.record(key).is_some_and(|record| record.existence != Existence::Deleted) {
            return Ok(false);
        }
        let record = shelf.record_or_new(key, now);
        record.attributes.clone_from(attributes);
        record.existence = Existence::Lasting;
        Ok(true)
    }

    async fn update(&self, grant: &Grant, change: &Change) -> Result<Written, StoreError> {
        Ok(self.fenced(grant, |record, _now| {
            if !change.fits(&record.attributes) {
                return Written::Unexpected;
            }
            change.apply(&mut record.attributes);
            record.existence = Existence::Lasting;
            Written::Applied
        }))
    }

    async fn transfer(
        &self,
        grant: &Grant,
        to: &Lessee,
        reserved: Duration,
    ) -> Result<Written, StoreError> {
        let written = self.fenced(grant, |record, now| {
            record.vacate(grant, now);
            record.reserve(Some(to.clone()), now + reserved);
            Written::Applied
        });
        self.shared.watches.wake(&grant.key);
        Ok(written)
    }

    async fn delete(&self, grant: &Grant) -> Result<Written, StoreError> {
        let written = self.fenced(grant, |record, now| {
            record.vacate(grant, now);
            record.attributes.clear();
            record.existence = Existence::Deleted;
            Written::Applied
        });
        self.shared.watches.wake(&grant.key);
        Ok(written)
    }

    async fn evict(&self, key: &LeaseKey, token: FencingToken) -> Result<bool, StoreError> {
        let (mut shelf, now) = self.open();
        let Some(record) = shelf.record_mut(key) else {
            return Ok(false);
        };
        let stands = record.holder(now).is_some_and(|holder| holder.token == token);
        match &mut record.tenure {
            Some(tenure) if stands => {
                tenure.evicted = true;
                Ok(true)
            }
            _ => Ok(false),
        }
    }
}
