//! The clock and the seed of a worker in a simulation.

use std::sync::Arc;

use lease_core::Locker;
use lease_core::store::Clock;

#[derive(Debug, Default)]
pub(super) struct Simulated {
    pub(super) clock: Option<Arc<dyn Clock>>,
    pub(super) seed: Option<u64>,
}

impl Simulated {
    pub(super) fn apply(self, mut locker: Locker) -> Locker {
        if let Some(clock) = self.clock {
            locker = locker.with_clock(clock);
        }
        if let Some(seed) = self.seed {
            locker = locker.with_seed(seed);
        }
        locker
    }
}
