//! Random numbers: marks from the operating system, or from a seed in a simulation.

use std::time::Duration;

use lease_core::store::Nonce;
#[cfg(feature = "conformance")]
use parking_lot::Mutex;
#[cfg(feature = "conformance")]
use rand::{Rng, SeedableRng, rngs::StdRng};
use uuid::Uuid;

#[derive(Debug)]
pub(crate) enum Random {
    /// The operating system. A generator in this process would be copied by `fork(2)` or a snapshot.
    System,
    #[cfg(feature = "conformance")]
    Seeded(Box<Mutex<StdRng>>),
}

impl Random {
    #[cfg(feature = "conformance")]
    pub(crate) fn from_seed(seed: u64) -> Self {
        Self::Seeded(Box::new(Mutex::new(StdRng::seed_from_u64(seed))))
    }

    /// A number that was never used before.
    pub(crate) fn mark(&self) -> Uuid {
        match self {
            Self::System => Nonce::random().get(),
            #[cfg(feature = "conformance")]
            Self::Seeded(random) => {
                let mut bytes = [0; 16];
                random.lock().fill_bytes(&mut bytes);
                uuid::Builder::from_random_bytes(bytes).into_uuid()
            }
        }
    }

    /// A random part of `length`.
    pub(crate) fn part_of(&self, length: Duration) -> Duration {
        let [.., last] = self.mark().into_bytes();
        length.mul_f64(f64::from(last) / 255.0)
    }
}
