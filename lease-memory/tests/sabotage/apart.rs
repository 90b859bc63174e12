//! Stores with a bug that appears only with a second handle or after the store was reopened.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt};
use lease_core::conformance::{Fixture, Reopened};
use lease_core::store::{
    Beat, Claim, Freed, Grant, Heartbeat, HeldKey, LeaseRecord, LeaseTable, LockStore, Nonce,
    Obtained,
};
use lease_core::{
    Attributes, Change, FencingToken, GrantId, Holder, LeaseKey, Lessee, LossCause, StoreError,
    Written,
};
use lease_memory::MemoryStore;
use tokio::task::yield_now;

use crate::saboteur::{first_token, now};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Apart {
    ObtainsInTwoSteps,
    ObtainsInTwoBlockingSteps,
    AdoptsInTwoSteps,
    HeartbeatsInTwoSteps,
    CreatesInTwoSteps,
    UpdatesInTwoSteps,
    CountsTokensInTheHandle,
    KeepsNoncesInTheHandle,
    CountsHeartbeatsInTheHandle,
    CachesThatNobodyHolds,
    CachesItsOwnGrants,
    WakesItsOwnWatchesAlone,
    EvictsInTheHandle,
    ScansItsOwnGrants,
    ForgetsGrants,
    ForgetsTokens,
    ForgetsNonces,
    ForgetsReservations,
    ForgetsHeartbeats,
    ForgetsAttributes,
    ForgetsEvictions,
    CallsItselfEmpty,
    CountsFromOneWhenEmpty,
}

#[derive(Debug)]
pub(crate) struct Handle {
    store: MemoryStore,
    sabotage: Apart,
    position: HandlePosition,
    shared: Arc<Shared>,
    own: Mutex<Own>,
    /// Makes the check and the write one atomic step, but only within this handle.
    steps: tokio::sync::Mutex<()>,
    blocking_steps: Mutex<()>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HandlePosition {
    First,
    Second,
    AfterReopening,
}

#[derive(Debug, Default)]
struct Shared {
    last: Mutex<HashMap<LeaseKey, Grant>>,
    released: Mutex<HashSet<Nonce>>,
    silent: AtomicBool,
}

#[derive(Debug, Default)]
struct Own {
    tokens: u64,
    released: HashSet<Nonce>,
    beats: HashMap<Nonce, Beat>,
    free: HashSet<LeaseKey>,
    granted: HashMap<LeaseKey, Nonce>,
    evicted: HashSet<GrantId>,
    reserved: HashMap<LeaseKey, (Holder, tokio::time::Instant)>,
}

#[async_trait]
impl Fixture for Apart {
    type Store = Handle;

    async fn store(&self) -> Handle {
        Handle::new(*self, HandlePosition::First, MemoryStore::counting_from_one(), Arc::default())
    }

    async fn another(&self, store: &Handle) -> Handle {
        Handle::new(*self, HandlePosition::Second, store.store.clone(), Arc::clone(&store.shared))
    }

    async fn reopen(&self, store: Handle) -> Reopened<Handle> {
        let data = match self {
            Self::CountsFromOneWhenEmpty => MemoryStore::counting_from_one(),
            _ => store.store,
        };
        let opened = Handle::new(*self, HandlePosition::AfterReopening, data, store.shared);
        match self {
            Self::CallsItselfEmpty | Self::CountsFromOneWhenEmpty => Reopened::Empty(opened),
            _ => Reopened::Intact(opened),
        }
    }

    fn time_may_be_paused(&self) -> bool {
        *self != Self::ObtainsInTwoBlockingSteps
    }
}

impl Handle {
    fn new(
        sabotage: Apart,
        position: HandlePosition,
        store: MemoryStore,
        shared: Arc<Shared>,
    ) -> Self {
        let (own, steps, blocking_steps) =
            (Mutex::default(), tokio::sync::Mutex::default(), Mutex::default());
        Self { store, sabotage, position, shared, own, steps, blocking_steps }
    }

    fn is(&self, sabotage: Apart) -> bool {
        self.sabotage == sabotage
    }

    fn has_forgotten(&self, sabotage: Apart) -> bool {
        self.is(sabotage) && self.position == HandlePosition::AfterReopening
    }

    fn own(&self) -> std::sync::MutexGuard<'_, Own> {
        self.own.lock().unwrap()
    }

    fn last(&self, key: &LeaseKey) -> Option<Grant> {
        self.shared.last.lock().unwrap().get(key).cloned()
    }

    fn learn(&self, obtained: &Obtained) {
        if let Obtained::Granted(grant, _) = obtained {
            self.own().free.remove(&grant.key);
            self.own().granted.insert(grant.key.clone(), grant.nonce);
            self.shared.last.lock().unwrap().insert(grant.key.clone(), grant.clone());
        }
    }

    async fn is_free(&self, key: &LeaseKey) -> Result<bool, StoreError> {
        Ok(self.store.holder(key).await?.is_none())
    }

    async fn is_current(&self, grant: &Grant) -> Result<bool, StoreError> {
        let holder = self.store.holder(&grant.key).await?;
        Ok(holder.is_some_and(|holder| holder.token == Some(grant.token)))
    }

    async fn overwrite(&self, claim: &Claim) -> Result<Obtained, StoreError> {
        if let Some(last) = self.last(&claim.key) {
            self.store.release(&last, None).await?;
        }
        self.store.obtain(claim).await
    }

    /// The stored token, because the handle may have returned another token.
    fn real(&self, grant: &Grant) -> Grant {
        let mut real = grant.clone();
        if let Some(last) = self.last(&grant.key).filter(|last| last.nonce == grant.nonce)
            && self.is(Apart::CountsTokensInTheHandle)
        {
            real.token = last.token;
        }
        real
    }

    fn obtain_blocking(&self, claim: &Claim) -> Result<Obtained, StoreError> {
        let _alone = self.blocking_steps.lock().unwrap();
        let holder = self.store.holder(&claim.key).now_or_never().unwrap()?;
        // An access to a small file takes about this time.
        thread::sleep(Duration::from_micros(50));
        let answer = self.store.obtain(claim).now_or_never().unwrap()?;
        let overwrites = holder.is_none()
            && matches!(answer, Obtained::Held(_))
            && self.store.holder(&claim.key).now_or_never().unwrap()?.is_some();
        if overwrites {
            return self.overwrite(claim).now_or_never().unwrap();
        }
        Ok(answer)
    }

    async fn obtain_in_steps(&self, claim: &Claim) -> Result<Obtained, StoreError> {
        let _alone = self.steps.lock().await;
        let was_free = self.is_free(&claim.key).await?;
        yield_now().await;
        let answer = self.store.obtain(claim).await?;
        let held = matches!(answer, Obtained::Held(_)) && !self.is_free(&claim.key).await?;
        if held && was_free {
            return self.overwrite(claim).await;
        }
        Ok(answer)
    }
}

#[async_trait]
impl LockStore for Handle {
    async fn obtain(&self, claim: &Claim) -> Result<Obtained, StoreError> {
        let reserved = self.own().reserved.get(&claim.key).cloned();
        if let Some((holder, until)) = reserved
            && now() < until
        {
            return Ok(Obtained::Held(holder));
        }
        let repeated = self.last(&claim.key).is_some_and(|last| last.nonce == claim.nonce);
        let mut answer = match self.sabotage {
            Apart::ObtainsInTwoSteps => self.obtain_in_steps(claim).await?,
            Apart::ObtainsInTwoBlockingSteps => self.obtain_blocking(claim)?,
            _ => self.store.obtain(claim).await?,
        };
        if let Obtained::Held(_) = answer {
            let free = self.is_free(&claim.key).await?;
            if self.has_forgotten(Apart::ForgetsGrants) && !free {
                answer = self.overwrite(claim).await?;
            }
            let released = self.shared.released.lock().unwrap().contains(&claim.nonce);
            let forgotten = self.has_forgotten(Apart::ForgetsNonces)
                || self.is(Apart::KeepsNoncesInTheHandle)
                    && self.position == HandlePosition::Second
                    && !self.own().released.contains(&claim.nonce);
            if forgotten && released && free {
                let fresh =
                    Claim::new(claim.key.clone(), claim.lessee.clone(), Nonce::random(), claim.ttl);
                answer = self.store.obtain(&fresh).await?;
            }
        }
        self.learn(&answer);
        if let Obtained::Granted(grant, _) = &mut answer {
            if self.has_forgotten(Apart::ForgetsTokens) && !repeated {
                grant.token = first_token();
            }
            if self.is(Apart::CountsTokensInTheHandle) && self.position == HandlePosition::Second {
                let mut own = self.own();
                own.tokens += 1;
                grant.token = FencingToken::new(own.tokens).unwrap();
            }
        }
        Ok(answer)
    }

    async fn heartbeat(&self, grant: &Grant, beat: Beat) -> Result<Heartbeat, StoreError> {
        let grant = &self.real(grant);
        if self.own().evicted.contains(&GrantId::from(grant.token)) {
            return Ok(Heartbeat::Lost(LossCause::Revoked));
        }
        if self.is(Apart::HeartbeatsInTwoSteps) {
            let _alone = self.steps.lock().await;
            let was_current = self.is_current(grant).await?;
            yield_now().await;
            let answer = self.store.heartbeat(grant, beat).await?;
            if was_current
                && matches!(answer, Heartbeat::Lost(_))
                && self.is_free(&grant.key).await?
            {
                let (key, lessee) = (grant.key.clone(), grant.lessee.clone());
                let again = Claim::new(key, lessee, Nonce::random(), grant.ttl);
                self.learn(&self.store.obtain(&again).await?);
                return Ok(Heartbeat::Extended);
            }
            return Ok(answer);
        }
        let answer = self.store.heartbeat(grant, beat).await?;
        let counted = self.own().beats.get(&grant.nonce).copied();
        match answer {
            Heartbeat::Extended => drop(self.own().beats.insert(grant.nonce, beat)),
            Heartbeat::Overtaken
                if self.has_forgotten(Apart::ForgetsHeartbeats)
                    || self.is(Apart::CountsHeartbeatsInTheHandle)
                        && self.position == HandlePosition::Second
                        && counted < Some(beat) =>
            {
                return self.store.heartbeat(grant, Beat::new(1_000_000)).await;
            }
            Heartbeat::Lost(LossCause::Superseded)
                if self.is(Apart::CachesItsOwnGrants)
                    && self.own().granted.get(&grant.key) == Some(&grant.nonce) =>
            {
                return Ok(Heartbeat::Extended);
            }
            Heartbeat::Lost(LossCause::Revoked)
                if self.has_forgotten(Apart::ForgetsEvictions)
                    && self.is_current(grant).await? =>
            {
                return Ok(Heartbeat::Extended);
            }
            _ => (),
        }
        Ok(answer)
    }

    async fn release(&self, grant: &Grant, reserved: Option<Duration>) -> Result<(), StoreError> {
        let _alone = self.steps.lock().await;
        let grant = &self.real(grant);
        if self.is(Apart::WakesItsOwnWatchesAlone) && self.position == HandlePosition::Second {
            self.shared.silent.store(true, Ordering::SeqCst);
        }
        let was_current = self.is_current(grant).await?;
        self.shared.released.lock().unwrap().insert(grant.nonce);
        self.own().released.insert(grant.nonce);
        match reserved {
            Some(time) if was_current && self.is(Apart::ForgetsReservations) => {
                self.own()
                    .reserved
                    .insert(grant.key.clone(), (grant.holder(Some(time)), now() + time));
                self.store.release(grant, None).await
            }
            _ => self.store.release(grant, reserved).await,
        }
    }

    async fn adopt(&self, grant: &Grant, claim: &Claim) -> Result<Obtained, StoreError> {
        let _alone = self.steps.lock().await;
        let was_current = self.is_current(grant).await?;
        if self.is(Apart::AdoptsInTwoSteps) {
            yield_now().await;
        }
        let mut answer = self.store.adopt(grant, claim).await?;
        let evicted = self.is_current(grant).await?;
        if self.is(Apart::AdoptsInTwoSteps)
            && was_current
            && !evicted
            && matches!(answer, Obtained::Held(_))
        {
            answer = self.overwrite(claim).await?;
        }
        self.learn(&answer);
        Ok(answer)
    }

    async fn holder(&self, key: &LeaseKey) -> Result<Option<Holder>, StoreError> {
        if self.is(Apart::CachesThatNobodyHolds) && self.own().free.contains(key) {
            return Ok(None);
        }
        let holder = self.store.holder(key).await?;
        if holder.is_none() {
            self.own().free.insert(key.clone());
        }
        Ok(holder)
    }

    async fn evict(&self, key: &LeaseKey, grant: &GrantId) -> Result<bool, StoreError> {
        if self.is(Apart::EvictsInTheHandle) && self.position == HandlePosition::Second {
            self.own().evicted.insert(grant.clone());
            return Ok(true);
        }
        self.store.evict(key, grant).await
    }

    fn scan(&self, prefix: &str) -> BoxStream<'_, Result<HeldKey, StoreError>> {
        if self.is(Apart::ScansItsOwnGrants) {
            let own = self.own().granted.clone();
            let of_handle = move |held: &Result<HeldKey, StoreError>| {
                let is_own = held.as_ref().is_ok_and(|held| own.contains_key(&held.key));
                std::future::ready(is_own)
            };
            return self.store.scan(prefix).filter(of_handle).boxed();
        }
        self.store.scan(prefix)
    }

    async fn watch(&self, key: &LeaseKey) -> Result<Freed, StoreError> {
        let (freed, shared) = (self.store.watch(key).await?, Arc::clone(&self.shared));
        Ok(Freed::when(async move {
            freed.await;
            if shared.silent.load(Ordering::SeqCst) {
                std::future::pending::<()>().await;
            }
        }))
    }
}

#[async_trait]
impl LeaseTable for Handle {
    async fn read(&self, key: &LeaseKey) -> Result<Option<LeaseRecord>, StoreError> {
        let mut record = self.store.read(key).await?;
        if self.has_forgotten(Apart::ForgetsAttributes)
            && let Some(record) = &mut record
        {
            record.attributes.clear();
        }
        Ok(record)
    }

    fn list(&self, prefix: &str) -> BoxStream<'_, Result<LeaseRecord, StoreError>> {
        self.store.list(prefix)
    }

    async fn create(&self, key: &LeaseKey, attributes: &Attributes) -> Result<bool, StoreError> {
        let _alone = self.steps.lock().await;
        let was_absent = self.store.read(key).await?.is_none();
        if self.is(Apart::CreatesInTwoSteps) {
            yield_now().await;
        }
        let made = self.store.create(key, attributes).await?;
        Ok(made || self.is(Apart::CreatesInTwoSteps) && was_absent)
    }

    async fn update(&self, grant: &Grant, change: &Change) -> Result<Written, StoreError> {
        let _alone = self.steps.lock().await;
        let record = self.store.read(&grant.key).await?;
        let fitted = record.is_some_and(|record| change.fits(&record.attributes));
        if self.is(Apart::UpdatesInTwoSteps) {
            yield_now().await;
        }
        let written = self.store.update(grant, change).await?;
        if self.is(Apart::UpdatesInTwoSteps) && fitted && written == Written::Unexpected {
            let mut unconditional = Change::new();
            for (name, value) in change.assigned() {
                unconditional = unconditional.set(name, value.clone());
            }
            return self.store.update(grant, &unconditional).await;
        }
        Ok(written)
    }

    async fn transfer(
        &self,
        grant: &Grant,
        to: &Lessee,
        reserved: Duration,
    ) -> Result<Written, StoreError> {
        self.store.transfer(grant, to, reserved).await
    }

    async fn delete(&self, grant: &Grant) -> Result<Written, StoreError> {
        self.store.delete(grant).await
    }
}
