//! One of our processes.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lease_core::LeaseOptions;
use lease_core::store::{Beat, Clock, Grant, Heartbeat, LockStore, Moment, Obtained};
use lease_kubernetes::{KubernetesRegister, KubernetesStore};
use lease_test_servers::claims::claim;
use lease_test_servers::kubernetes::{ApiServer, PATIENT};
use rand::RngExt;
use rand::rngs::StdRng;

use crate::{NAMESPACE, TTL};

pub(crate) struct Lessee {
    pub(crate) name: &'static str,
    store: KubernetesStore,
    clock: LocalClock,
    held: Option<Held>,
    /// When the process acts next.
    next: Duration,
}

struct Held {
    grant: Grant,
    beat: u64,
    /// By the process's clock, counted from before the last request.
    until: Moment,
}

impl Lessee {
    pub(crate) async fn new(
        server: &ApiServer,
        name: &'static str,
        now: Arc<AtomicU64>,
        rate: f64,
    ) -> Self {
        let builder = KubernetesRegister::builder().with_namespace(NAMESPACE);
        let builder = builder.with_server(server.endpoint()).with_timeout(PATIENT);
        let clock = LocalClock { now, rate };
        let store = KubernetesStore::builder(builder.connect().await.unwrap());
        let store = store.with_clock(Arc::new(clock.clone())).build().unwrap();
        Self { name, store, clock, held: None, next: Duration::ZERO }
    }

    /// Whether the process relies on its lease. A pause does not matter: the deadline passes all the same.
    pub(crate) fn leads(&self, _now: Duration) -> bool {
        self.held.as_ref().is_some_and(|held| self.clock.now() < held.until)
    }

    /// Claims the key, extends the lease or releases it. Returns the token of a new grant.
    pub(crate) async fn step(
        &mut self,
        now: Duration,
        pause: Option<Duration>,
        random: &mut StdRng,
    ) -> Option<u64> {
        self.next = self.next.max(pause.unwrap_or_default());
        if now < self.next {
            return None;
        }
        self.next = now + TTL.mul_f64(random.random_range(0.1..0.4));
        // As the locker does.
        let until = self.clock.now() + LeaseOptions::new(TTL).unwrap().trusted(TTL, GRAIN);
        let Some(held) = self.held.take_if(|held| self.clock.now() < held.until) else {
            let claim = claim(&"job".parse().unwrap(), self.name, TTL);
            let Obtained::Granted(grant, _) = self.store.obtain(&claim).await.unwrap() else {
                return None;
            };
            let token = grant.token.get();
            self.held = Some(Held { grant, beat: 0, until });
            return Some(token);
        };
        if random.random_bool(0.1) {
            self.store.release(&held.grant, None).await.unwrap();
            self.next = now + TTL.mul_f64(random.random_range(0.0..2.0));
            return None;
        }
        let beat = held.beat + 1;
        let extended = self.store.heartbeat(&held.grant, Beat::new(beat)).await.unwrap();
        self.held = (extended == Heartbeat::Extended).then_some(Held { beat, until, ..held });
        None
    }
}

/// The store counts a ttl exactly.
const GRAIN: Duration = Duration::ZERO;

/// The trial's time, at another rate.
#[derive(Clone)]
struct LocalClock {
    now: Arc<AtomicU64>,
    rate: f64,
}

impl Clock for LocalClock {
    fn now(&self) -> Moment {
        let now = Duration::from_micros(self.now.load(Ordering::SeqCst));
        // Before its beginning, no lease was observed.
        Moment::from_nanos(1_000_000_000_000) + now.mul_f64(self.rate)
    }
}

impl fmt::Debug for LocalClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalClock").field("rate", &self.rate).finish_non_exhaustive()
    }
}
