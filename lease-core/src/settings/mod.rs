//! What a locker, its leases and its tasks share and never change.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{BootClock, Clock, Moment};
use crate::key::Lessee;
use crate::metrics::{Metrics, Uncounted};
use crate::options::LeaseOptions;
use crate::random::Random;
use crate::store::LockStore;
use crate::watchdog::Watchdog;

#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) store: Arc<dyn LockStore>,
    pub(crate) lessee: Lessee,
    pub(crate) options: LeaseOptions,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<Random>,
    pub(crate) metrics: Arc<dyn Metrics>,
    pub(crate) watchdog: Option<Arc<Watchdog>>,
}

impl Settings {
    pub(crate) fn new(store: Arc<dyn LockStore>) -> Self {
        let random = Random::from_entropy();
        Self {
            store,
            lessee: Lessee::of_this_process(random.salt()),
            options: LeaseOptions::default(),
            clock: Arc::new(BootClock),
            random: Arc::new(random),
            metrics: Arc::new(Uncounted),
            watchdog: None,
        }
    }

    /// How long the application has not said that it is alive, once that is too long.
    pub(crate) fn silence(&self, now: Moment) -> Option<Duration> {
        self.watchdog.as_ref()?.silence(now)
    }

    /// How long a holder may trust a ttl that began no earlier than its request.
    pub(crate) fn trusted(&self, ttl: Duration) -> Duration {
        self.options.trusted(ttl, self.store.grain())
    }
}
