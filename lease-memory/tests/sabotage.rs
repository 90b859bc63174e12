//! The kit proves itself: a sound store is broken in one way, and exactly that promise fails.

#![expect(clippy::unwrap_used, reason = "a saboteur that fails is a test that fails")]

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use lease_core::conformance::{Fixture, lock_promises, table_promises};
use lease_core::{
    Attributes, Beat, Change, Claim, FencingToken, Freed, Grant, Heartbeat, Holder, LeaseKey,
    LeaseRecord, LeaseTable, Lessee, LockStore, LossCause, Nonce, Obtained, StoreError, Value,
    Written,
};
use lease_memory::MemoryStore;
use uuid::Uuid;

/// What is broken. Each is one careless line in somebody's store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sabotage {
    GrantsTwice,
    GrantsOneLesseeTwice,
    ForgetsTheToken,
    ForgetsTheTokenOnExpiry,
    KeepsTheTokenOnAdoption,
    IgnoresTheNonceOnRelease,
    RegrantsAReleasedNonce,
    HeartbeatIgnoresItsTtl,
    LateHeartbeatShortens,
    LateHeartbeatIsCalledALoss,
    HeartbeatRevives,
    ExtendsOnRepeatedClaim,
    AdoptsTwice,
    AdoptsWhatWasReleased,
    IgnoresReservations,
    ReleasesInSilence,
    UpdateIsNotFenced,
    UpdateIgnoresTheToken,
    UpdateExtends,
    TransfersToItself,
    DeleteIsNotFenced,
    CreateOverwrites,
    ListsOtherPrefixes,
    EvictsByKeyAlone,
    EvictionFreesAtOnce,
    AdoptsWhatWasEvicted,
    TellsOfExpiredHolders,
    AdoptionKeepsTheOldExpiry,
    AdoptionForgetsAttributes,
    UpdatesWhatHasExpired,
    ExpectsTheFirstAlone,
    ExpectsTextAlone,
    IgnoresWhatIsExpectedAbsent,
    RepeatsWhatItHasApplied,
    TellsTheUnexpectedFirst,
    TransfersInSilence,
    BatchHasAnEnd,
}

#[derive(Debug)]
struct Sabotaged {
    store: MemoryStore,
    sabotage: Sabotage,
    known: Mutex<HashMap<LeaseKey, Known>>,
    /// The changes that were applied.
    applied: Mutex<Vec<Change>>,
    beats: AtomicU64,
    silent: Arc<AtomicBool>,
}

/// Fails unless the promise `broken` fails, and no other.
fn breaks(sabotage: Sabotage, broken: &str) {
    // Broken promises panic, as expected: their reports would drown the one that matters.
    std::panic::set_hook(Box::new(|_| ()));
    let promises = lock_promises::<Sabotage>().into_iter().chain(table_promises());
    let failed: Vec<_> = promises
        .filter(|promise| catch_unwind(AssertUnwindSafe(|| (promise.hold)(sabotage))).is_err())
        .map(|promise| promise.name)
        .collect();
    drop(std::panic::take_hook());

    assert_eq!(failed, [broken], "{sabotage:?}");
}

macro_rules! sabotages {
    ($($sabotage:ident breaks $promise:ident;)*) => {
        /// One after the other: the panic hook is the whole process'.
        #[test]
        fn each_sabotage_breaks_its_own_promise_and_no_other() {
            $(breaks(Sabotage::$sabotage, stringify!($promise));)*
        }
    };
}

sabotages! {
    GrantsTwice breaks a_held_key_is_granted_to_nobody_else;
    GrantsOneLesseeTwice breaks one_lessee_is_not_granted_a_key_twice;
    ForgetsTheToken breaks tokens_grow_over_releases;
    ForgetsTheTokenOnExpiry breaks tokens_grow_over_expiry;
    KeepsTheTokenOnAdoption breaks tokens_grow_over_adoption;
    IgnoresTheNonceOnRelease breaks a_release_by_a_former_holder_changes_nothing;
    RegrantsAReleasedNonce breaks a_released_nonce_is_not_granted_again;
    HeartbeatIgnoresItsTtl breaks a_heartbeat_lasts_as_long_as_its_own_ttl;
    LateHeartbeatShortens breaks a_late_heartbeat_does_not_shorten;
    LateHeartbeatIsCalledALoss breaks a_late_heartbeat_is_overtaken;
    HeartbeatRevives breaks a_heartbeat_does_not_revive_what_has_expired;
    ExtendsOnRepeatedClaim breaks a_repeated_claim_does_not_extend;
    AdoptsTwice breaks a_grant_is_adopted_at_most_once;
    AdoptsWhatWasReleased breaks a_released_grant_is_not_adopted;
    IgnoresReservations breaks a_reserved_key_is_granted_to_nobody_for_its_time;
    ReleasesInSilence breaks a_watch_wakes_on_release;
    UpdateIsNotFenced breaks an_update_by_a_former_holder_changes_nothing;
    UpdateIgnoresTheToken breaks an_update_under_an_earlier_token_changes_nothing;
    UpdateExtends breaks an_update_does_not_extend;
    TransfersToItself breaks a_transferred_key_is_free_for_one_lessee_alone;
    DeleteIsNotFenced breaks a_delete_by_a_former_holder_changes_nothing;
    CreateOverwrites breaks a_record_is_created_once;
    ListsOtherPrefixes breaks a_list_has_every_record_of_its_prefix;
    EvictsByKeyAlone breaks an_eviction_by_another_token_changes_nothing;
    EvictionFreesAtOnce breaks an_evicted_lease_runs_out_and_not_before;
    AdoptsWhatWasEvicted breaks an_evicted_grant_is_not_adopted;
    TellsOfExpiredHolders breaks an_expired_key_has_no_holder;
    AdoptionKeepsTheOldExpiry breaks an_adoption_lasts_for_its_own_ttl;
    AdoptionForgetsAttributes breaks attributes_are_told_to_who_adopts;
    UpdatesWhatHasExpired breaks an_update_after_expiry_changes_nothing;
    ExpectsTheFirstAlone breaks an_update_that_expects_another_value_changes_nothing;
    ExpectsTextAlone breaks every_type_of_attribute_can_be_expected;
    IgnoresWhatIsExpectedAbsent breaks an_absent_attribute_can_be_expected;
    RepeatsWhatItHasApplied breaks a_late_update_does_not_undo_a_newer_one;
    TellsTheUnexpectedFirst breaks a_lost_grant_is_told_before_what_was_unexpected;
    TransfersInSilence breaks a_watch_wakes_on_transfer;
    BatchHasAnEnd breaks many_heartbeats_are_each_answered_once;
}

#[async_trait]
impl Fixture for Sabotage {
    type Store = Sabotaged;

    async fn store(&self) -> Sabotaged {
        Sabotaged {
            store: MemoryStore::counting_from_one(),
            sabotage: *self,
            known: Mutex::default(),
            applied: Mutex::default(),
            beats: AtomicU64::default(),
            silent: Arc::default(),
        }
    }

    fn time_may_be_paused(&self) -> bool {
        true
    }
}

/// What the saboteur remembers of a key, to put it to bad use.
#[derive(Debug, Clone)]
struct Known {
    /// The grant that was answered last.
    grant: Grant,
    /// The store's own.
    token: FencingToken,
    granted_at: tokio::time::Instant,
    /// Whether it was released.
    released: bool,
    /// Whether it ended otherwise than by expiry.
    ended: bool,
    adopted: Option<Nonce>,
}

impl Sabotaged {
    fn is(&self, sabotage: Sabotage) -> bool {
        self.sabotage == sabotage
    }

    fn known(&self, key: &LeaseKey) -> Option<Known> {
        self.known.lock().unwrap().get(key).cloned()
    }

    fn learn(&self, grant: &Grant, token: FencingToken) {
        let known = Known {
            grant: grant.clone(),
            token,
            granted_at: now(),
            released: false,
            ended: false,
            adopted: None,
        };
        self.known.lock().unwrap().insert(grant.key.clone(), known);
    }

    /// The grant as the store knows it: a sabotage may have told another token.
    fn as_granted(&self, grant: &Grant) -> Grant {
        let mut grant = grant.clone();
        if let Some(known) = self.known(&grant.key).filter(|known| known.grant == grant) {
            grant.token = known.token;
        }
        grant
    }

    fn amend(&self, key: &LeaseKey, amend: impl FnOnce(&mut Known)) {
        if let Some(known) = self.known.lock().unwrap().get_mut(key) {
            amend(known);
        }
    }

    /// A beat that no honest heartbeat has reached.
    fn high_beat(&self) -> Beat {
        Beat::new(1_000_000 + self.beats.fetch_add(1, Ordering::SeqCst))
    }

    fn fresh(claim: &Claim) -> Claim {
        let nonce = Nonce::new(Uuid::from_u128(!claim.nonce.get().as_u128()));
        Claim::new(claim.key.clone(), claim.lessee.clone(), nonce, claim.ttl)
    }
}

fn now() -> tokio::time::Instant {
    #[expect(clippy::disallowed_methods, reason = "a saboteur's clock")]
    tokio::time::Instant::now()
}

/// The same change, with other expectations.
fn expecting<'a>(
    change: &'a Change,
    expected: impl IntoIterator<Item = (&'a str, Option<&'a Value>)>,
) -> Change {
    let mut other = Change::new();
    for (name, value) in change.assigned() {
        other = other.set(name, value.clone());
    }
    for name in change.removed() {
        other = other.remove(name);
    }
    for (name, value) in expected {
        other = match value {
            Some(value) => other.expecting(name, value.clone()),
            None => other.expecting_none(name),
        };
    }
    other
}

fn first() -> FencingToken {
    FencingToken::new(1).unwrap()
}

#[async_trait]
impl LockStore for Sabotaged {
    async fn obtain(&self, claim: &Claim) -> Result<Obtained, StoreError> {
        let known = self.known(&claim.key);
        let answer = self.store.obtain(claim).await?;
        match (answer, known) {
            (Obtained::Held(holder), Some(known)) => {
                let stands = self.store.holder(&claim.key).await?.is_some();
                let same_lessee = holder.lessee == claim.lessee;
                let young = now() < known.granted_at + known.grant.ttl / 4;
                let next = FencingToken::new(holder.token.get() + 1).unwrap();
                let granted = || Obtained::Granted(claim.granted(next), Attributes::new());
                // A grant that a replica has not heard of yet.
                if self.is(Sabotage::GrantsTwice) && stands && young && !same_lessee {
                    return Ok(granted());
                }
                if self.is(Sabotage::GrantsOneLesseeTwice) && stands && same_lessee {
                    return Ok(granted());
                }
                if self.is(Sabotage::RegrantsAReleasedNonce)
                    && known.released
                    && known.grant.nonce == claim.nonce
                {
                    return self.store.obtain(&Self::fresh(claim)).await;
                }
                Ok(Obtained::Held(holder))
            }
            (Obtained::Granted(mut grant, attributes), known) => {
                let token = grant.token;
                let repeated = known.as_ref().is_some_and(|k| k.grant.nonce == claim.nonce);
                if self.is(Sabotage::ExtendsOnRepeatedClaim) && repeated {
                    self.store.heartbeat(&grant, Beat::GRANTED.next()).await?;
                }
                if let Some(known) = known {
                    if self.is(Sabotage::ForgetsTheToken) && known.released {
                        grant = claim.granted(first());
                    }
                    if self.is(Sabotage::ForgetsTheTokenOnExpiry) && !known.ended {
                        grant = claim.granted(first());
                    }
                }
                self.learn(&grant, token);
                Ok(Obtained::Granted(grant, attributes))
            }
            (answer, None) => Ok(answer),
        }
    }

    async fn heartbeat(&self, grant: &Grant, beat: Beat) -> Result<Heartbeat, StoreError> {
        let shorter = self.known(&grant.key).is_some_and(|known| grant.ttl < known.grant.ttl);
        if let (true, Some(known)) =
            (self.is(Sabotage::HeartbeatIgnoresItsTtl), self.known(&grant.key))
        {
            let mut usual = grant.clone();
            usual.ttl = known.grant.ttl;
            return self.store.heartbeat(&usual, beat).await;
        }
        match self.store.heartbeat(&self.as_granted(grant), beat).await? {
            Heartbeat::Overtaken if self.is(Sabotage::LateHeartbeatShortens) && shorter => {
                self.store.heartbeat(grant, self.high_beat()).await?;
                Ok(Heartbeat::Overtaken)
            }
            Heartbeat::Overtaken if self.is(Sabotage::LateHeartbeatIsCalledALoss) => {
                Ok(Heartbeat::Lost(LossCause::Expired))
            }
            Heartbeat::Lost(LossCause::Expired) if self.is(Sabotage::HeartbeatRevives) => {
                let nonce = Nonce::new(Uuid::from_u128(!grant.nonce.get().as_u128()));
                let (key, lessee) = (grant.key.clone(), grant.lessee.clone());
                self.store.obtain(&Claim::new(key, lessee, nonce, grant.ttl)).await?;
                Ok(Heartbeat::Extended)
            }
            answer => Ok(answer),
        }
    }

    async fn release(&self, grant: &Grant, reserved: Option<Duration>) -> Result<(), StoreError> {
        if self.is(Sabotage::ReleasesInSilence) {
            self.silent.store(true, Ordering::SeqCst);
        }
        let known = self.known(&grant.key);
        if self.is(Sabotage::IgnoresTheNonceOnRelease)
            && let Some(known) = known
        {
            return self.store.release(&known.grant, reserved).await;
        }
        self.amend(&grant.key, |known| {
            known.released |= known.grant.nonce == grant.nonce;
            known.ended |= known.released;
        });
        let reserved = reserved.filter(|_| !self.is(Sabotage::IgnoresReservations));
        self.store.release(grant, reserved).await
    }

    async fn adopt(&self, grant: &Grant, claim: &Claim) -> Result<Obtained, StoreError> {
        let known = self.known(&grant.key);
        let left = self.store.holder(&grant.key).await?.and_then(|holder| holder.expires_in);
        match self.store.adopt(grant, claim).await? {
            Obtained::Granted(adopted, mut attributes) => {
                let (token, mut granted) = (adopted.token, adopted);
                if let (true, Some(left)) = (self.is(Sabotage::AdoptionKeepsTheOldExpiry), left) {
                    let mut as_before = granted.clone();
                    as_before.ttl = left;
                    self.store.heartbeat(&as_before, Beat::GRANTED.next()).await?;
                }
                if self.is(Sabotage::AdoptionForgetsAttributes) {
                    attributes.clear();
                }
                if self.is(Sabotage::KeepsTheTokenOnAdoption) {
                    granted = claim.granted(grant.token);
                }
                self.learn(&granted, token);
                self.amend(&grant.key, |known| known.adopted = Some(grant.nonce));
                Ok(Obtained::Granted(granted, attributes))
            }
            Obtained::Held(holder) => {
                let adopted = known.as_ref().and_then(|known| known.adopted);
                if self.is(Sabotage::AdoptsTwice) && adopted == Some(grant.nonce) {
                    let next = FencingToken::new(holder.token.get() + 1).unwrap();
                    return Ok(Obtained::Granted(claim.granted(next), Attributes::new()));
                }
                let released = known.is_some_and(|k| k.released && k.grant.nonce == grant.nonce);
                let stands = holder.expires_in > Some(Duration::ZERO);
                let evicted = stands && holder.token == grant.token;
                if self.is(Sabotage::AdoptsWhatWasEvicted) && evicted {
                    self.store.release(grant, None).await?;
                    return self.store.obtain(claim).await;
                }
                if self.is(Sabotage::AdoptsWhatWasReleased) && released {
                    return self.store.obtain(claim).await;
                }
                Ok(Obtained::Held(holder))
            }
        }
    }

    async fn holder(&self, key: &LeaseKey) -> Result<Option<Holder>, StoreError> {
        let holder = self.store.holder(key).await?;
        let expired = self.known(key).filter(|known| !known.ended);
        if let (true, None, Some(known)) =
            (self.is(Sabotage::TellsOfExpiredHolders), &holder, expired)
        {
            let left = Some(Duration::ZERO);
            return Ok(Some(Holder::new(known.grant.lessee, known.grant.token, left)));
        }
        Ok(holder)
    }

    fn heartbeat_all<'a>(
        &'a self,
        beats: &'a [(Grant, Beat)],
    ) -> BoxStream<'a, (usize, Result<Heartbeat, StoreError>)> {
        let end = if self.is(Sabotage::BatchHasAnEnd) { 256 } else { beats.len() };
        self.store.heartbeat_all(beats.get(..end).unwrap_or(beats))
    }

    async fn watch(&self, key: &LeaseKey) -> Result<Freed, StoreError> {
        let freed = self.store.watch(key).await?;
        let silent = Arc::clone(&self.silent);
        Ok(Freed::when(async move {
            freed.await;
            if silent.load(Ordering::SeqCst) {
                std::future::pending::<()>().await;
            }
        }))
    }
}

#[async_trait]
impl LeaseTable for Sabotaged {
    async fn read(&self, key: &LeaseKey) -> Result<Option<LeaseRecord>, StoreError> {
        self.store.read(key).await
    }

    fn list(&self, prefix: &str) -> BoxStream<'_, Result<LeaseRecord, StoreError>> {
        if self.is(Sabotage::ListsOtherPrefixes) {
            return self.store.list(prefix.trim_end_matches('/'));
        }
        self.store.list(prefix)
    }

    async fn create(&self, key: &LeaseKey, attributes: &Attributes) -> Result<bool, StoreError> {
        let created = self.store.create(key, attributes).await?;
        if !created && self.is(Sabotage::CreateOverwrites) {
            let old = self.store.read(key).await?.map(|record| record.attributes);
            let lessee = Lessee::new("saboteur").unwrap();
            let nonce = Nonce::new(Uuid::from_u128(1));
            let claim = Claim::new(key.clone(), lessee, nonce, Duration::from_secs(1));
            if let Obtained::Granted(grant, _) = self.store.obtain(&claim).await? {
                let change = old
                    .into_iter()
                    .flatten()
                    .fold(Change::new(), |change, (name, _)| change.remove(name));
                let _ = self.store.update(&grant, &change).await?;
                self.store.release(&grant, None).await?;
            }
        }
        Ok(created)
    }

    async fn update(&self, grant: &Grant, change: &Change) -> Result<Written, StoreError> {
        let is_text = |value: Option<&Value>| value.is_none_or(|it| it.as_text().is_some());
        if self.is(Sabotage::ExpectsTextAlone)
            && !change.expected().all(|(_, value)| is_text(value))
        {
            return Ok(Written::Unexpected);
        }
        let mut written = self.store.update(grant, change).await?;
        if let (Written::Lost(_), Some(known)) = (written, self.known(&grant.key))
            && self.is(if known.grant.nonce == grant.nonce {
                Sabotage::UpdateIgnoresTheToken
            } else {
                Sabotage::UpdateIsNotFenced
            })
            // What an update under a lost grant expects is the matter of another promise.
            && change.expected().next().is_none()
        {
            written = self.store.update(&known.grant, change).await?;
        }
        if let (Written::Lost(LossCause::Expired), true) =
            (written, self.is(Sabotage::UpdatesWhatHasExpired))
        {
            let claim =
                Claim::new(grant.key.clone(), grant.lessee.clone(), Nonce::random(), grant.ttl);
            if let Obtained::Granted(again, _) = self.store.obtain(&claim).await? {
                written = self.store.update(&again, change).await?;
                self.store.release(&again, None).await?;
            }
        }
        match written {
            Written::Unexpected => {
                let applied = self.applied.lock().unwrap().contains(change);
                let careless = match self.sabotage {
                    Sabotage::ExpectsTheFirstAlone => expecting(change, change.expected().take(1)),
                    Sabotage::IgnoresWhatIsExpectedAbsent => {
                        expecting(change, change.expected().filter(|(_, value)| value.is_some()))
                    }
                    Sabotage::RepeatsWhatItHasApplied if applied => expecting(change, []),
                    _ => return Ok(written),
                };
                return self.store.update(grant, &careless).await;
            }
            Written::Lost(_) if self.is(Sabotage::TellsTheUnexpectedFirst) => {
                let record = self.store.read(&grant.key).await?;
                if record.is_some_and(|record| !change.fits(&record.attributes)) {
                    return Ok(Written::Unexpected);
                }
            }
            _ => self.applied.lock().unwrap().push(change.clone()),
        }
        if self.is(Sabotage::UpdateExtends) {
            self.store.heartbeat(grant, self.high_beat()).await?;
        }
        Ok(written)
    }

    async fn transfer(
        &self,
        grant: &Grant,
        to: &Lessee,
        reserved: Duration,
    ) -> Result<Written, StoreError> {
        self.amend(&grant.key, |known| known.ended = true);
        if self.is(Sabotage::TransfersInSilence) {
            self.silent.store(true, Ordering::SeqCst);
        }
        let to = if self.is(Sabotage::TransfersToItself) { &grant.lessee } else { to };
        self.store.transfer(grant, to, reserved).await
    }

    async fn delete(&self, grant: &Grant) -> Result<Written, StoreError> {
        self.amend(&grant.key, |known| known.ended = true);
        let written = self.store.delete(grant).await?;
        if let (Written::Lost(_), true) = (written, self.is(Sabotage::DeleteIsNotFenced))
            && let Some(known) = self.known(&grant.key)
        {
            return self.store.delete(&known.grant).await;
        }
        Ok(written)
    }

    async fn evict(&self, key: &LeaseKey, token: FencingToken) -> Result<bool, StoreError> {
        let holder = self.store.holder(key).await?;
        match (self.sabotage, holder, self.known(key)) {
            (Sabotage::EvictsByKeyAlone, Some(holder), _) => {
                self.store.evict(key, holder.token).await
            }
            (Sabotage::EvictionFreesAtOnce, Some(holder), Some(known)) if holder.token == token => {
                self.store.release(&known.grant, None).await?;
                Ok(true)
            }
            _ => self.store.evict(key, token).await,
        }
    }
}
