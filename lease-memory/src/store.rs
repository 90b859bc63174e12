//! The store. Each method runs under one lock.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use lease_core::store::{
    Beat, BootClock, Claim, Clock, Freed, Grant, Heartbeat, HeldKey, InTurn, LeaseRecord,
    LeaseTable, LockStore, Moment, Obtained, Sessions, micros_since_1970,
};
use lease_core::{
    Attributes, Change, GrantId, Holder, LeaseKey, Lessee, LossCause, StoreError, StoreErrorKind,
    Written,
};
use parking_lot::{Mutex, MutexGuard};

use crate::queues::Listeners;
use crate::record::{Decision, Lifetime, Record};
use crate::records::Records;
use crate::watch::Watches;

/// Stores leases in the memory of this process. Clones share the leases.
///
/// The store keeps every promise of the traits, so unit tests can rely on it, also in paused time
/// (`tokio::time::pause`).
///
/// | event | effect |
/// |---|---|
/// | the process pauses, or the machine is suspended | leases expire during this time |
/// | the wall clock steps | nothing changes |
/// | the process ends | all leases end, and the tokens of the next process are larger, unless the wall clock was set back |
/// | a request arrives again, at the latest a ttl (at least 10 s) after the release | nothing changes |
/// | a claim arrives again after another lessee's grant was released | the store may hold the key for a ttl for a lessee that does not know of this grant |
/// | an update arrives again after a later update of the same grant | the store undoes the later update, unless an expected attribute has changed |
///
/// The store forgets a record a ttl after its release, and at the earliest after 10 s. A record that was
/// created or updated, or whose claim had attributes, stays until it is deleted. The store remembers the
/// largest token of all forgotten records.
///
/// # Examples
///
/// ```
/// use lease_core::{Attempt, Locker};
/// use lease_memory::MemoryStore;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let locker = Locker::new(MemoryStore::new());
/// let Attempt::Obtained(lease) = locker.obtain(&"report".parse()?).await? else {
///     return Ok(());
/// };
/// lease.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct MemoryStore {
    pub(crate) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    clock: Arc<dyn Clock>,
    records: Mutex<Records>,
    pub(crate) watches: Watches,
    pub(crate) listeners: Listeners,
}

impl MemoryStore {
    /// Creates an empty store. Its tokens start at the microseconds since 1970.
    pub fn new() -> Self {
        Self::with(Arc::new(BootClock::new()), micros_since_1970())
    }

    /// Creates an empty store whose tokens start at 1, for tests that compare tokens.
    ///
    /// The tokens of the next process also start at 1. Use [`new`](Self::new) for resources that outlive
    /// the process.
    pub fn counting_from_one() -> Self {
        Self::with(Arc::new(BootClock::new()), 0)
    }

    /// Creates an empty store that reads its time from `clock`, and whose tokens start at 1, for
    /// simulations.
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        Self::with(clock, 0)
    }

    fn with(clock: Arc<dyn Clock>, floor: u64) -> Self {
        let records = Mutex::new(Records::new(floor));
        let (watches, listeners) = (Watches::default(), Listeners::default());
        Self { shared: Arc::new(Shared { clock, records, watches, listeners }) }
    }

    /// The number of records, including deleted records whose token and nonce the store still keeps.
    pub fn records(&self) -> usize {
        self.lock().0.len()
    }

    /// Returns the time at which the lock was obtained.
    pub(crate) fn lock(&self) -> (MutexGuard<'_, Records>, Moment) {
        let mut records = self.shared.records.lock();
        // Reads the clock under the lock, so that the time never decreases between two writes.
        let now = self.shared.clock.now();
        records.remove_outdated(now);
        (records, now)
    }

    /// Grants a freed key to the first claim in its queue. If the queue is empty, notifies the watches.
    pub(crate) fn freed(
        &self,
        mut records: MutexGuard<'_, Records>,
        key: &LeaseKey,
        now: Moment,
    ) -> Result<(), StoreError> {
        let is_granted = self.shared.settle(&mut records, key, now)?;
        if !is_granted {
            self.shared.watches.freed(key);
        }
        Ok(())
    }

    fn free_under(
        &self,
        grant: &Grant,
        write: impl FnOnce(&mut Record, Moment) -> Written,
    ) -> Result<Written, StoreError> {
        let written = self.write_under(grant, write);
        let (records, now) = self.lock();
        self.freed(records, &grant.key, now)?;
        Ok(written)
    }

    fn write_under(
        &self,
        grant: &Grant,
        write: impl FnOnce(&mut Record, Moment) -> Written,
    ) -> Written {
        let (mut records, now) = self.lock();
        let Some(record) = records.get_mut(&grant.key) else {
            return Written::Lost(LossCause::Expired);
        };
        if let Err(cause) = record.current_grant(grant, now) {
            return Written::Lost(cause);
        }
        let written = write(record, now);
        if record.lifetime == Lifetime::Deleted {
            records.check_for_removal(&grant.key, now);
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
        refuse_child(claim)?;
        let (mut records, now) = self.lock();
        // The last holder's lease may have expired. Then the first claim in the queue gets the key.
        self.shared.settle(&mut records, &claim.key, now)?;
        let floor = records.floor();
        let record = records.get_or_create(&claim.key, now);
        match record.decide(claim, now) {
            Decision::Free => {
                let obtained = record.grant_above(floor, claim, now)?;
                self.shared.watches.taken(&claim.key);
                Ok(obtained)
            }
            Decision::AlreadyGranted(request, token) => {
                let grant = claim.granted_to(Some(request), token);
                Ok(Obtained::Granted(grant, record.attributes.clone()))
            }
            Decision::Held(holder) => Ok(Obtained::Held(holder)),
        }
    }

    async fn heartbeat(&self, grant: &Grant, beat: Beat) -> Result<Heartbeat, StoreError> {
        let (mut records, now) = self.lock();
        Ok(match records.get_mut(&grant.key) {
            Some(record) => record.heartbeat(grant, beat, now),
            None => Heartbeat::Lost(LossCause::Expired),
        })
    }

    async fn release(&self, grant: &Grant, reserved: Option<Duration>) -> Result<(), StoreError> {
        let (mut records, now) = self.lock();
        let Some(record) = records.get_mut(&grant.key) else {
            return Ok(());
        };
        if record.release(grant, now) {
            if let Some(reserved) = reserved {
                record.reserve(None, now + reserved);
            }
            self.freed(records, &grant.key, now)?;
        }
        Ok(())
    }

    async fn adopt(&self, grant: &Grant, claim: &Claim) -> Result<Obtained, StoreError> {
        let (mut records, now) = self.lock();
        let former = || grant.holder(Some(Duration::ZERO));
        let Some(record) = records.get_mut(&grant.key) else {
            return Ok(Obtained::Held(former()));
        };
        if let Decision::AlreadyGranted(request, token) = record.decide(claim, now) {
            let grant = claim.granted_to(Some(request), token);
            return Ok(Obtained::Granted(grant, record.attributes.clone()));
        }
        match record.current_grant(grant, now) {
            Ok(current) if !current.evicted => {
                record.release(grant, now);
                records.grant(claim, now)
            }
            _ => Ok(Obtained::Held(record.holder(now).unwrap_or_else(former))),
        }
    }

    async fn holder(&self, key: &LeaseKey) -> Result<Option<Holder>, StoreError> {
        let (records, now) = self.lock();
        Ok(records.get(key).and_then(|record| record.holder(now)))
    }

    async fn evict(&self, key: &LeaseKey, grant: &GrantId) -> Result<bool, StoreError> {
        let (mut records, now) = self.lock();
        let Some(record) = records.get_mut(key) else { return Ok(false) };
        if record.grant.as_ref().is_some_and(|current| current.parent.is_some()) {
            let text = "a lease under a session cannot be evicted: evict its session";
            return Err(StoreError::new(StoreErrorKind::Refused, text));
        }
        Ok(record.evict(grant, now))
    }

    fn scan(&self, prefix: &str) -> BoxStream<'_, Result<HeldKey, StoreError>> {
        let (records, now) = self.lock();
        let of_prefix = records.iter().filter(|(key, _)| key.as_str().starts_with(prefix));
        let held: Vec<_> = of_prefix
            .filter_map(|(key, record)| Some(HeldKey::new(key.clone(), record.holder(now)?)))
            .collect();
        stream::iter(held.into_iter().map(Ok)).boxed()
    }

    async fn watch(&self, key: &LeaseKey) -> Result<Freed, StoreError> {
        Ok(self.shared.watches.watch(key))
    }

    fn in_turn(&self) -> Option<&dyn InTurn> {
        Some(self)
    }

    fn sessions(&self) -> Option<&dyn Sessions> {
        Some(self)
    }
}

#[async_trait]
impl LeaseTable for MemoryStore {
    async fn read(&self, key: &LeaseKey) -> Result<Option<LeaseRecord>, StoreError> {
        let (records, now) = self.lock();
        Ok(records.get(key).and_then(|record| record.to_lease_record(key, now)))
    }

    fn list(&self, prefix: &str) -> BoxStream<'_, Result<LeaseRecord, StoreError>> {
        let (records, now) = self.lock();
        let mut listed: Vec<_> = records
            .iter()
            .filter(|(key, _)| key.as_str().starts_with(prefix))
            .filter_map(|(key, record)| record.to_lease_record(key, now))
            .collect();
        listed.sort_by(|a, b| a.key.cmp(&b.key));
        stream::iter(listed.into_iter().map(Ok)).boxed()
    }

    async fn create(&self, key: &LeaseKey, attributes: &Attributes) -> Result<bool, StoreError> {
        let (mut records, now) = self.lock();
        if records.get(key).is_some_and(|record| record.lifetime != Lifetime::Deleted) {
            return Ok(false);
        }
        let record = records.get_or_create(key, now);
        record.attributes.clone_from(attributes);
        record.lifetime = Lifetime::Lasting;
        Ok(true)
    }

    async fn update(&self, grant: &Grant, change: &Change) -> Result<Written, StoreError> {
        Ok(self.write_under(grant, |record, _now| {
            if !change.fits(&record.attributes) {
                return Written::Unexpected;
            }
            change.apply(&mut record.attributes);
            record.lifetime = Lifetime::Lasting;
            Written::Applied
        }))
    }

    async fn transfer(
        &self,
        grant: &Grant,
        to: &Lessee,
        reserved: Duration,
    ) -> Result<Written, StoreError> {
        self.free_under(grant, |record, now| {
            record.release(grant, now);
            record.reserve(Some(to.clone()), now + reserved);
            Written::Applied
        })
    }

    async fn delete(&self, grant: &Grant) -> Result<Written, StoreError> {
        self.free_under(grant, |record, now| {
            record.release(grant, now);
            record.attributes.clear();
            record.lifetime = Lifetime::Deleted;
            Written::Applied
        })
    }
}

/// Only `obtain_under` checks that the key is free for a claim under a session.
pub(crate) fn refuse_child(claim: &Claim) -> Result<(), StoreError> {
    if claim.parent.is_none() {
        return Ok(());
    }
    let text = "a claim under a session is made by `obtain_under`";
    Err(StoreError::new(StoreErrorKind::Refused, text))
}
