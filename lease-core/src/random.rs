//! Where all chance comes from: nonces, jitter, shuffles. Seedable, so that a run can be
//! played again.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, RngExt, SeedableRng};
use uuid::{Builder, Uuid};

#[derive(Debug)]
pub(crate) struct Random(Mutex<StdRng>);

impl Random {
    /// Seeded by the operating system: what keeps nonces apart across the world.
    pub(crate) fn from_entropy() -> Self {
        Self(Mutex::new(rand::make_rng()))
    }

    pub(crate) fn from_seed(seed: u64) -> Self {
        Self(Mutex::new(StdRng::seed_from_u64(seed)))
    }

    pub(crate) fn uuid(&self) -> Uuid {
        let mut bytes = [0; 16];
        self.rng().fill_bytes(&mut bytes);
        Builder::from_random_bytes(bytes).into_uuid()
    }

    pub(crate) fn salt(&self) -> u32 {
        self.rng().next_u32()
    }

    /// Some part of `length`, from `least` (0 to 1) of it up to all of it.
    pub(crate) fn part_of(&self, length: Duration, least: f64) -> Duration {
        length.mul_f64(self.rng().random_range(least..=1.0))
    }

    pub(crate) fn shuffle<T>(&self, items: &mut [T]) {
        items.shuffle(&mut *self.rng());
    }

    fn rng(&self) -> MutexGuard<'_, StdRng> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
