//! The context of one promise: a store, claims of lessees, and time that passes.

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;

use crate::clock::{BootClock, Clock, Moment};
use crate::conformance::kit::race::Race;
use crate::conformance::{Faulty, Fixture, Reopened};
use crate::error::StoreErrorKind;
use crate::key::{LeaseKey, Lessee};
use crate::locker::Locker;
use crate::options::LeaseOptions;
use crate::store::grant::{Beat, Claim, Grant, GrantId, Heartbeat, HeldKey, Holder, Obtained};
use crate::store::lock_store::LockStore;
use crate::store::nonce::Nonce;

/// The store of one test, behind a network. The network has no faults until a promise adds some.
pub struct Case<F: Fixture> {
    pub(crate) fixture: F,
    pub(crate) store: Faulty<F::Store>,
    pub(crate) ttl: Duration,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Taken {
    /// When the last refused claim was sent, if any. The key was held at least until this time.
    pub(crate) refused: Option<Moment>,
    pub(crate) granted: Moment,
}

#[expect(clippy::expect_used, clippy::panic, reason = "a panic reports a broken promise")]
impl<F: Fixture> Case<F> {
    pub(crate) async fn new(fixture: F) -> Self {
        let store = Faulty::new(fixture.store().await);
        let ttl = fixture.ttl();
        Self { fixture, store, ttl }
    }

    #[expect(clippy::unused_self, reason = "it is the case's key")]
    pub(crate) fn key(&self) -> LeaseKey {
        name("conformance/key")
    }

    pub(crate) fn claim(&self, lessee: &str) -> Claim {
        self.claim_of(&self.key(), lessee)
    }

    /// Makes a claim whose ttl is longer than any test takes, even on a slow store.
    pub(crate) fn long_claim(&self, key: &LeaseKey, lessee: &str) -> Claim {
        Claim { ttl: self.fixture.long_ttl(), ..self.claim_of(key, lessee) }
    }

    pub(crate) fn claim_of(&self, key: &LeaseKey, lessee: &str) -> Claim {
        let lessee = Lessee::new(lessee).expect("a lessee");
        Claim::new(key.clone(), lessee, Nonce::random(), self.ttl)
    }

    pub(crate) async fn granted(&self, lessee: &str) -> Grant {
        self.obtain(&self.claim(lessee)).await
    }

    pub(crate) async fn obtain(&self, claim: &Claim) -> Grant {
        match self.ask(claim).await {
            Obtained::Granted(grant, _) => grant,
            Obtained::Held(holder) => {
                panic!(
                    "the store should grant {}, which is free, to {}, but it answered Held: \
                     {holder:?}",
                    claim.key, claim.lessee
                )
            }
        }
    }

    pub(crate) async fn ask(&self, claim: &Claim) -> Obtained {
        self.store.obtain(claim).await.expect("the store should answer a claim")
    }

    pub(crate) async fn heartbeat(&self, grant: &Grant, beat: u64) -> Heartbeat {
        self.store
            .heartbeat(grant, Beat::new(beat))
            .await
            .expect("the store should answer a heartbeat")
    }

    pub(crate) async fn release(&self, grant: &Grant) {
        self.store.release(grant, None).await.expect("the store should answer a release");
    }

    pub(crate) async fn adopt(&self, grant: &Grant, claim: &Claim) -> Obtained {
        self.store.adopt(grant, claim).await.expect("the store should answer an adoption")
    }

    /// `grant` must be the current grant.
    pub(crate) async fn adopted(&self, grant: &Grant, claim: &Claim) -> Grant {
        expect_granted(self.adopt(grant, claim).await, "the adoption of the current grant")
    }

    pub(crate) async fn holder(&self) -> Option<Holder> {
        self.store.holder(&self.key()).await.expect("the store should return the holder of a key")
    }

    pub(crate) async fn lessee_of_holder(&self) -> Option<Lessee> {
        self.holder().await.map(|holder| holder.lessee)
    }

    #[track_caller]
    pub(crate) fn has_no_holder(&self, after: &str) -> impl Future<Output = ()> {
        let caller = Location::caller();
        async move {
            let holder = self.holder().await;
            assert!(
                holder.is_none(),
                "`holder` should be None after {after} ({caller}): {holder:?}"
            );
        }
    }

    #[track_caller]
    pub(crate) fn has_holder(&self, lessee: &Lessee, why: &str) -> impl Future<Output = ()> {
        let caller = Location::caller();
        async move {
            let holder = self.lessee_of_holder().await;
            assert_eq!(
                holder.as_ref(),
                Some(lessee),
                "`holder` should name {lessee}: {why} ({caller})"
            );
        }
    }

    pub(crate) async fn holder_of(&self, key: &LeaseKey) -> Option<Holder> {
        self.store.holder(key).await.expect("the store should return the holder of a key")
    }

    pub(crate) async fn evicted(&self) -> bool {
        evicted_by(&*self.store.inner(), &self.key()).await
    }

    pub(crate) async fn two_handles(&self) -> (Arc<F::Store>, Arc<F::Store>) {
        let first = self.store.inner();
        let second = Arc::new(self.fixture.another(&first).await);
        (first, second)
    }

    /// Numbers the races. With paused time, all requests run on one task: paused time does not
    /// advance while other threads run, so a request that sleeps would never end.
    pub(crate) fn races(&self) -> impl Iterator<Item = (usize, Race)> + use<F> {
        let alternating = std::iter::repeat_n(Race::Alternating, 32);
        let on_threads = if self.fixture.time_may_be_paused() { 0 } else { 32 };
        alternating.chain(std::iter::repeat_n(Race::OnThreads, on_threads)).enumerate()
    }

    /// Returns `None` if the fixture reports an empty store. A claim then checks that the store is empty.
    pub(crate) async fn reopened(self) -> Option<Self> {
        let (case, is_empty) = self.reopen().await;
        if !is_empty {
            return Some(case);
        }
        expect_granted(
            case.ask(&case.claim("after-reopening")).await,
            "any key after the fixture has reopened it as `Empty`. Otherwise, the fixture should \
             say `Intact`",
        );
        None
    }

    pub(crate) async fn reopened_or_empty(self) -> Self {
        self.reopen().await.0
    }

    async fn reopen(self) -> (Self, bool) {
        let Self { fixture, store, ttl } = self;
        let mut open = store.inner();
        drop(store);
        // The task of an answered request may keep a reference to the store for a moment longer.
        let open = loop {
            match Arc::try_unwrap(open) {
                Ok(open) => break open,
                Err(shared) => open = shared,
            }
            tokio::task::yield_now().await;
        };
        let (store, is_empty) = match fixture.reopen(open).await {
            Reopened::Intact(store) => (store, false),
            Reopened::Empty(store) => (store, true),
        };
        (Self { fixture, store: Faulty::new(store), ttl }, is_empty)
    }

    pub(crate) async fn pass(&self, time: Duration) {
        self.fixture.pass(time).await;
    }

    #[expect(clippy::unused_self, reason = "it is the case's clock")]
    pub(crate) fn now(&self) -> Moment {
        BootClock::new().now()
    }

    /// Returns the grant, and when its answer arrived.
    pub(crate) async fn taken_over(&self, lessee: &str) -> (Grant, Moment) {
        self.taken_over_by(&self.claim(lessee)).await
    }

    pub(crate) async fn taken_over_by(&self, claim: &Claim) -> (Grant, Moment) {
        for _ in 0..80 {
            if let Obtained::Granted(grant, _) = self.ask(claim).await {
                return (grant, self.now());
            }
            self.pass(self.ttl / 16).await;
        }
        panic!("the store should grant {} within five ttls after its lease expired", claim.key);
    }

    pub(crate) async fn is_granted_or_refused_as_spent(&self, mut claim: Claim) {
        for _ in 0..80 {
            claim = claim.repeated();
            let Obtained::Held(holder) = self.ask(&claim).await else { return };
            if holder.expires_in == Some(Duration::ZERO) {
                assert_eq!(
                    holder.lessee, claim.lessee,
                    "no lessee holds {}, so the store refuses the claim because its own grant has ended: the \
                     refusal should name the claim's own lessee",
                    claim.key
                );
                return;
            }
            self.pass(self.ttl / 16).await;
        }
        panic!(
            "the store should grant {} again to a claim whose own grant has ended, or refuse the claim with no \
             time left",
            claim.key
        );
    }

    pub(crate) async fn both_taken_over(&self, keys: [&LeaseKey; 2]) -> [Taken; 2] {
        let claims = keys.map(|key| self.claim_of(key, "both"));
        let mut refused = [None; 2];
        let mut taken = [None; 2];
        for _ in 0..160 {
            for ((claim, refused), taken) in claims.iter().zip(&mut refused).zip(&mut taken) {
                if taken.is_some() {
                    continue;
                }
                let asked = self.now();
                match self.ask(claim).await {
                    Obtained::Granted(..) => {
                        *taken = Some(Taken { refused: *refused, granted: self.now() });
                    }
                    Obtained::Held(_) => *refused = Some(asked),
                }
            }
            if let [Some(one), Some(other)] = taken {
                return [one, other];
            }
            self.pass(self.ttl / 16).await;
        }
        panic!(
            "the store should grant both keys within ten ttls after their leases expired: \
             {keys:?}, {taken:?}"
        );
    }

    pub(crate) async fn not_extended(&self, touched: &LeaseKey, left_alone: &LeaseKey) {
        let key = touched;
        let [touched, left_alone] = self.both_taken_over([touched, left_alone]).await;
        // Counts only the certain part of the difference, because the machine may pause between two claims.
        let refused = touched.refused;
        let longer = refused.map_or(Duration::ZERO, |at| at.since(left_alone.granted));
        assert!(
            longer < self.ttl / 4,
            "{key} was held for {longer:?} longer than a lease that was granted at the same time: \
             the store should not extend it"
        );
    }

    pub(crate) fn not_before_ttl(&self, taken: Moment, since: Moment) {
        self.not_before(taken, since, self.ttl);
    }

    pub(crate) fn not_before(&self, taken: Moment, since: Moment, ttl: Duration) {
        let least = ttl.saturating_sub(self.store.grain());
        let after = taken.since(since);
        assert!(
            after >= least,
            "the key was granted again {after:?} after a grant for {ttl:?}: the store should wait \
             for the ttl"
        );
    }

    pub(crate) fn locker(&self) -> Locker {
        self.locker_on(self.store.clone())
    }

    pub(crate) fn sound_locker(&self) -> Locker {
        self.locker_on(self.store.inner())
    }

    fn locker_on(&self, store: impl LockStore) -> Locker {
        let options = LeaseOptions::new(self.ttl)
            .and_then(|options| options.with_poll_interval(self.ttl / 20))
            .expect("a fixture's ttl within a lease's range");
        Locker::new(store).with_options(options)
    }
}

impl<F: Fixture> fmt::Debug for Case<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case").field("store", &self.store).finish_non_exhaustive()
    }
}

/// Fails if the eviction fails.
#[expect(clippy::expect_used, clippy::panic, reason = "a panic reports a broken promise")]
pub(crate) async fn evicted_by(store: &impl LockStore, key: &LeaseKey) -> bool {
    let holder = store.holder(key).await.expect("the store should return the holder of a key");
    let holder = holder.expect("a held key should have a holder");
    let grant = holder.grant.unwrap_or_else(|| GrantId::new("unnamed"));
    match store.evict(key, &grant).await {
        Ok(true) => true,
        Ok(false) => panic!("the store should evict the current grant"),
        Err(error) if error.kind() == StoreErrorKind::Unsupported => false,
        Err(error) => panic!("the store should answer an eviction: {error:?}"),
    }
}

/// Returns the held keys in order and without duplicates, or `None` if the store cannot scan.
#[expect(clippy::panic, reason = "a panic reports a broken promise")]
pub(crate) async fn scanned_by(store: &impl LockStore, prefix: &str) -> Option<Vec<HeldKey>> {
    let mut scanned = Vec::new();
    let mut items = store.scan(prefix);
    while let Some(item) = items.next().await {
        match item {
            Ok(held) => scanned.push(held),
            Err(error) if error.kind() == StoreErrorKind::Unsupported => return None,
            Err(error) => panic!("the store should scan: {error:?}"),
        }
    }
    scanned.sort_by(|one, other| one.key.cmp(&other.key));
    scanned.dedup_by(|one, other| one.key == other.key);
    Some(scanned)
}

#[expect(clippy::expect_used, reason = "the kit's own names are valid")]
pub(crate) fn name(key: &str) -> LeaseKey {
    LeaseKey::new(key).expect("a valid key")
}

/// Fails unless `second` is the grant `first` again, as after a lost reply.
#[track_caller]
pub(crate) fn expect_again(second: &Grant, first: &Grant, what: &str) {
    let same = |grant: &Grant| (grant.key.clone(), grant.lessee.clone(), grant.nonce, grant.ttl);
    assert_eq!(same(second), same(first), "the store should answer {what} with its grant");
    assert!(
        second.token >= first.token,
        "the store should answer {what} with the token of the grant, or with a larger one: {} after {}",
        second.token,
        first.token
    );
}

#[expect(clippy::panic, reason = "a panic reports a broken promise")]
#[track_caller]
pub(crate) fn expect_granted(obtained: Obtained, what: &str) -> Grant {
    match obtained {
        Obtained::Granted(grant, _) => grant,
        Obtained::Held(holder) => {
            panic!("the store should grant {what}, but it answered Held: {holder:?}")
        }
    }
}

#[expect(clippy::panic, reason = "a panic reports a broken promise")]
#[track_caller]
pub(crate) fn expect_held(obtained: Obtained, what: &str) -> Holder {
    match obtained {
        Obtained::Held(holder) => holder,
        Obtained::Granted(grant, _) => {
            panic!("the store should refuse {what}, but it granted {grant:?}")
        }
    }
}
