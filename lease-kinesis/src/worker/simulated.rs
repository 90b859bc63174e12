//! The clock and the seed of a worker in a simulation.

use std::sync::Arc;

use lease_core::Locker;
use lease_core::store::Clock;

use crate::worker::builder::WorkerBuilder;

/// The clock and the seed of a worker's locker.
#[derive(Debug, Default)]
pub(super) struct Simulated {
    clock: Option<Arc<dyn Clock>>,
    seed: Option<u64>,
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

#[cfg_attr(docsrs, doc(cfg(feature = "simulation")))]
impl WorkerBuilder {
    /// Sets the clock for lease time, for simulations.
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.simulated.clock = Some(clock);
        self
    }

    /// Sets the seed of all random choices, for simulations.
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.simulated.seed = Some(seed);
        self
    }
}
