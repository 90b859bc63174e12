//! The random numbers of a model, from one seed.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lease_core::conformance::Simulation;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Clones share one state.
#[derive(Debug, Clone)]
pub(crate) struct SharedRandom(Arc<Mutex<StdRng>>);

impl SharedRandom {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(StdRng::seed_from_u64(seed))))
    }

    pub(crate) fn part_of(&self, length: Duration) -> Duration {
        length.mul_f64(self.0.lock().unwrap().random_range(0.0..1.0))
    }

    pub(crate) fn latency(&self) -> Duration {
        Simulation::LATENCY + self.part_of(JITTER)
    }

    pub(crate) fn is_even(&self) -> bool {
        self.0.lock().unwrap().random()
    }

    pub(crate) fn is_one_in(&self, many: u32) -> bool {
        self.0.lock().unwrap().random_ratio(1, many)
    }

    pub(crate) fn run_id(&self) -> u128 {
        self.0.lock().unwrap().random()
    }
}

const JITTER: Duration = Duration::from_millis(3);
