//! Random numbers: nonces from the operating system, jitter and shuffles from a generator of this process.
//!
//! With a seed, a seeded generator makes all random numbers, so that a test can repeat a run.

use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
#[cfg(feature = "conformance")]
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, RngExt};
use uuid::Builder;

use crate::error::{StoreError, StoreErrorKind};
use crate::store::nonce::{Nonce, system_uuid};

#[derive(Debug)]
pub(crate) struct Random {
    rng: Mutex<StdRng>,
    nonces: NonceSource,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NonceSource {
    /// `fork(2)` or a snapshot of the machine would copy a generator in this process. Both copies
    /// would then claim under the same nonce.
    System,
    #[cfg(feature = "conformance")]
    Seeded,
}

impl Random {
    pub(crate) fn from_entropy() -> Self {
        Self { rng: Mutex::new(rand::make_rng()), nonces: NonceSource::System }
    }

    #[cfg(feature = "conformance")]
    pub(crate) fn from_seed(seed: u64) -> Self {
        Self { rng: Mutex::new(StdRng::seed_from_u64(seed)), nonces: NonceSource::Seeded }
    }

    pub(crate) fn nonce(&self) -> Result<Nonce, StoreError> {
        if self.nonces == NonceSource::System {
            let no_randomness = |error| StoreError::new(StoreErrorKind::Misconfigured, error);
            return system_uuid().map(Nonce::new).map_err(no_randomness);
        }
        let mut bytes = [0; 16];
        self.rng().fill_bytes(&mut bytes);
        Ok(Nonce::new(Builder::from_random_bytes(bytes).into_uuid()))
    }

    pub(crate) fn salt(&self) -> u32 {
        self.rng().next_u32()
    }

    /// A random part of `length`, between `least` (0 to 1) and all of `length`.
    pub(crate) fn part_of(&self, length: Duration, least: f64) -> Duration {
        length.mul_f64(self.rng().random_range(least..=1.0))
    }

    pub(crate) fn unit(&self) -> f64 {
        self.rng().random_range(0.0..1.0)
    }

    pub(crate) fn shuffle<T>(&self, items: &mut [T]) {
        items.shuffle(&mut *self.rng());
    }

    fn rng(&self) -> MutexGuard<'_, StdRng> {
        self.rng.lock()
    }
}
