//! What every promise is told with: a store, lessees, and time that passes.

use std::fmt;
use std::time::Duration;

use crate::clock::{BootClock, Clock, Moment};
use crate::conformance::{Faulty, Fixture};
use crate::grant::{Beat, Claim, Grant, Heartbeat, Holder, Obtained};
use crate::key::{LeaseKey, Lessee};
use crate::locker::Locker;
use crate::nonce::Nonce;
use crate::options::LeaseOptions;
use crate::store::LockStore;

/// One test's store, behind a network that is sound until a promise says otherwise.
pub struct Case<F: Fixture> {
    pub(crate) fixture: F,
    pub(crate) store: Faulty<F::Store>,
    pub(crate) ttl: Duration,
}

/// How a key that was held came to be granted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Taken {
    /// When it was asked for and refused for the last time, if ever: until then at least it was held.
    pub(crate) refused: Option<Moment>,
    /// When the grant was answered.
    pub(crate) granted: Moment,
}

#[expect(clippy::expect_used, clippy::panic, reason = "a promise is broken by panicking")]
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

    /// A fresh claim of the usual key.
    pub(crate) fn claim(&self, lessee: &str) -> Claim {
        self.claim_of(&self.key(), lessee)
    }

    pub(crate) fn claim_of(&self, key: &LeaseKey, lessee: &str) -> Claim {
        let lessee = Lessee::new(lessee).expect("a lessee");
        Claim::new(key.clone(), lessee, Nonce::random(), self.ttl)
    }

    /// Obtains the usual key, which must be free.
    pub(crate) async fn granted(&self, lessee: &str) -> Grant {
        self.obtain(&self.claim(lessee)).await
    }

    /// Has `claim` granted, which must be possible.
    pub(crate) async fn obtain(&self, claim: &Claim) -> Grant {
        match self.ask(claim).await {
            Obtained::Granted(grant, _) => grant,
            Obtained::Held(holder) => {
                panic!("{} was not granted to {}: held by {holder:?}", claim.key, claim.lessee)
            }
        }
    }

    pub(crate) async fn ask(&self, claim: &Claim) -> Obtained {
        self.store.obtain(claim).await.expect("an answer to a claim")
    }

    pub(crate) async fn heartbeat(&self, grant: &Grant, beat: u64) -> Heartbeat {
        self.store.heartbeat(grant, Beat::new(beat)).await.expect("an answer to a heartbeat")
    }

    pub(crate) async fn release(&self, grant: &Grant) {
        self.store.release(grant, None).await.expect("an answer to a release");
    }

    pub(crate) async fn adopt(&self, grant: &Grant, claim: &Claim) -> Obtained {
        self.store.adopt(grant, claim).await.expect("an answer to an adoption")
    }

    pub(crate) async fn holder(&self) -> Option<Holder> {
        self.store.holder(&self.key()).await.expect("who holds the key")
    }

    pub(crate) async fn lessee_of_holder(&self) -> Option<Lessee> {
        self.holder().await.map(|holder| holder.lessee)
    }

    pub(crate) async fn pass(&self, time: Duration) {
        self.fixture.pass(time).await;
    }

    #[expect(clippy::unused_self, reason = "it is the case's clock")]
    pub(crate) fn now(&self) -> Moment {
        BootClock::new().now()
    }

    /// Asks again and again until the usual key is granted; tells the grant, and when it was
    /// answered. The store may ask for some time beyond the ttl, but not for ever.
    pub(crate) async fn taken_over(&self, lessee: &str) -> (Grant, Moment) {
        let claim = self.claim(lessee);
        for _ in 0..80 {
            if let Obtained::Granted(grant, _) = self.ask(&claim).await {
                return (grant, self.now());
            }
            self.pass(self.ttl / 16).await;
        }
        panic!("{} was not granted within five ttls", claim.key);
    }

    /// Asks again and again for two keys until both are granted; tells when each was.
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
        panic!("not granted within ten ttls: {keys:?}, {taken:?}");
    }

    /// Fails if `touched` lasted longer than `left_alone`, which was granted at the same time.
    pub(crate) async fn not_extended(&self, touched: &LeaseKey, left_alone: &LeaseKey) {
        let [touched, left_alone] = self.both_taken_over([touched, left_alone]).await;
        // As much as is certain: a machine may stand still between two questions.
        let refused = touched.refused;
        let longer = refused.map_or(Duration::ZERO, |at| at.since(left_alone.granted));
        assert!(longer < self.ttl / 4, "it lasted {longer:?} longer");
    }

    /// Fails if somebody was granted the key less than a ttl after `since`.
    pub(crate) fn not_before_ttl(&self, taken: Moment, since: Moment) {
        self.not_before(taken, since, self.ttl);
    }

    pub(crate) fn not_before(&self, taken: Moment, since: Moment, ttl: Duration) {
        let least = ttl.saturating_sub(self.store.grain());
        let after = taken.since(since);
        assert!(after >= least, "taken {after:?} after it was granted for {ttl:?}");
    }

    /// A locker on the store behind the network, with the usual ttl.
    pub(crate) fn locker(&self) -> Locker {
        self.locker_on(self.store.clone())
    }

    /// A locker that no fault of the network befalls.
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

#[expect(clippy::expect_used, reason = "the kit's own names are valid")]
pub(crate) fn name(key: &str) -> LeaseKey {
    LeaseKey::new(key).expect("a valid key")
}

/// The grant, where one was expected.
#[expect(clippy::panic, reason = "a promise is broken by panicking")]
#[track_caller]
pub(crate) fn expect_granted(obtained: Obtained) -> Grant {
    match obtained {
        Obtained::Granted(grant, _) => grant,
        Obtained::Held(holder) => panic!("expected a grant, but the key is held by {holder:?}"),
    }
}

/// The holder, where one was expected.
#[expect(clippy::panic, reason = "a promise is broken by panicking")]
#[track_caller]
pub(crate) fn expect_held(obtained: Obtained) -> Holder {
    match obtained {
        Obtained::Held(holder) => holder,
        Obtained::Granted(grant, _) => panic!("granted, although the key is held: {grant:?}"),
    }
}
