//! Injects faults into the calls of a simulated stream.

use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::sleep;

use crate::source::{SourceError, SourceErrorKind};

/// Configures the faults of a [`SimStream`](crate::SimStream). The default injects none.
///
/// Probabilities are 0.0 to 1.0 and apply to each call and each push.
///
/// # Examples
///
/// ```
/// use lease_kinesis::Faults;
///
/// let faults = Faults { throttled: 0.2, unavailable: 0.05, ..Faults::default() };
/// # assert!(faults.empty.abs() < f64::EPSILON);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[expect(clippy::exhaustive_structs, reason = "tests make these, from the default")]
pub struct Faults {
    /// The probability of a [`Throttled`](crate::SourceErrorKind::Throttled) error.
    pub throttled: f64,
    /// The probability of an [`Unavailable`](crate::SourceErrorKind::Unavailable) error.
    pub unavailable: f64,
    /// The probability that a fetch returns no records although the shard has records.
    pub empty: f64,
    /// The maximum delay of a call. The delay of each call is random, up to this value.
    pub delay: Duration,
}

#[derive(Debug)]
pub(super) struct FaultInjector(Mutex<(StdRng, Faults)>);

impl FaultInjector {
    pub(super) fn new(seed: u64, faults: Faults) -> Self {
        Self(Mutex::new((StdRng::seed_from_u64(seed), faults)))
    }

    pub(super) fn set(&self, faults: Faults) {
        self.lock().1 = faults;
    }

    pub(super) async fn inject(&self) -> Result<(), SourceError> {
        let delay = {
            let (rng, faults) = &mut *self.lock();
            // Each call draws this number, even without a delay. So a delay does not shift later random
            // numbers.
            faults.delay.mul_f64(rng.random_range(0.0..1.0))
        };
        if !delay.is_zero() {
            sleep(delay).await;
        }
        let (rng, faults) = &mut *self.lock();
        let drawn = rng.random_range(0.0..1.0);
        if drawn < faults.throttled {
            let text = "throttled by the injected faults";
            return Err(SourceError::new(SourceErrorKind::Throttled, text));
        }
        if drawn < faults.throttled + faults.unavailable {
            let text = "unavailable by the injected faults";
            return Err(SourceError::new(SourceErrorKind::Unavailable, text));
        }
        Ok(())
    }

    pub(super) fn hides_records(&self) -> bool {
        let (rng, faults) = &mut *self.lock();
        rng.random_range(0.0..1.0) < faults.empty
    }

    fn lock(&self) -> MutexGuard<'_, (StdRng, Faults)> {
        self.0.lock()
    }
}
