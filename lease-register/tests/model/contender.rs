//! What a contender does: obtains the key, sends a heartbeat, and releases the key.

use std::collections::BTreeMap;
use std::sync::Arc;

use lease_core::store::{
    Beat, Claim, Clock, Grant, Heartbeat, LockStore, Nonce, Obtained, RequestNumber, ServerClock,
};
use lease_core::{LeaseKey, Lessee};
use lease_register::RegisterStore;
use uuid::Uuid;

use crate::world::{Breach, Client, ModelClock, TTL, World};

pub(crate) struct Contender {
    number: usize,
    world: World,
    store: RegisterStore<Client>,
    nonces: u128,
}

impl Contender {
    pub(crate) fn new(number: usize, world: &World, breach: Option<Breach>) -> Self {
        let is = |other| breach == Some(other);
        let factor = if number == 1 && is(Breach::HastyClock) { 2 } else { 1 };
        let clock: Arc<dyn Clock> = Arc::new(ModelClock { world: world.clone(), factor });
        // Each takes the time of its own machine for the service's. The second machine is ahead.
        let server_clock = is(Breach::ForeignClock).then(|| {
            let ahead = if number == 1 { 3600 } else { 0 };
            ServerClock::new(Arc::new(Ahead(Arc::clone(&clock), ahead)), 0.0)
        });
        let client = Client { number, world: world.clone(), clock: server_clock };
        let store = RegisterStore::builder(client)
            .with_clock(clock)
            .with_clock_rate_error(0.0)
            .with_seed(number as u64)
            .build()
            .unwrap();
        Self { number, world: world.clone(), store, nonces: 0 }
    }

    /// Obtains the key in at most `attempts` attempts, and uses it once.
    pub(crate) async fn contend(mut self, attempts: usize) {
        let Some(grant) = self.obtain(attempts).await else { return };

        self.store.register().think().await;
        let sent = self.world.state().now;
        match self.store.heartbeat(&grant, Beat::new(1)).await {
            Ok(Heartbeat::Extended) => self.hold_until(sent + TTL),
            Ok(Heartbeat::Lost(_)) => return self.hold_until(std::time::Duration::ZERO),
            Ok(Heartbeat::Overtaken) | Err(_) => (),
        }

        self.store.register().think().await;
        self.hold_until(std::time::Duration::ZERO);
        drop(self.store.release(&grant, None).await);
    }

    /// Obtains the key. A claim whose answer was lost is repeated with its nonce, as a locker does.
    pub(crate) async fn obtain(&mut self, attempts: usize) -> Option<Grant> {
        let mut claim = self.claim();
        let mut sent = BTreeMap::new();
        for _ in 0..attempts {
            sent.insert(claim.request, self.world.state().now);
            match self.store.obtain(&claim).await {
                Ok(Obtained::Granted(grant, _)) => {
                    let request = grant.request.unwrap_or(RequestNumber::FIRST);
                    self.hold_until(sent[&request] + TTL);
                    return Some(grant);
                }
                Ok(Obtained::Held(_)) => {
                    claim = self.claim();
                    sent.clear();
                }
                Err(_) => claim = claim.repeated(),
            }
        }
        None
    }

    fn claim(&mut self) -> Claim {
        self.nonces += 1;
        let nonce = Nonce::new(Uuid::from_u128((self.number as u128) << 64 | self.nonces));
        let lessee = Lessee::new(format!("lessee-{}", self.number)).unwrap();
        Claim::new(LeaseKey::new("key").unwrap(), lessee, nonce, TTL)
    }

    fn hold_until(&self, until: std::time::Duration) {
        self.world.note(format!("{} holds until {until:?}", self.number));
        self.world.state().held[self.number] = until;
    }
}

/// The clock of a machine that is ahead by some seconds.
#[derive(Debug)]
struct Ahead(Arc<dyn Clock>, u64);

impl Clock for Ahead {
    fn now(&self) -> lease_core::store::Moment {
        self.0.now() + std::time::Duration::from_secs(self.1)
    }
}
