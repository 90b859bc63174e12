//! Bad weather between a reader and its stream: the same for the same seed.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::sleep;

use crate::source::{SourceError, SourceErrorKind};

/// How badly a [`SimStream`](crate::SimStream) is reached. The default is not badly at all.
///
/// Chances are 0.0 to 1.0, for each call and each push.
///
/// # Examples
///
/// ```
/// use lease_kinesis::Faults;
///
/// let bad_day = Faults { throttled: 0.2, unavailable: 0.05, ..Faults::default() };
/// # assert!(bad_day.empty.abs() < f64::EPSILON);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[expect(clippy::exhaustive_structs, reason = "tests make these, from the default")]
pub struct Faults {
    /// The chance of being told that it was too much.
    pub throttled: f64,
    /// The chance of no answer.
    pub unavailable: f64,
    /// The chance that a fetch finds nothing though there is something, which Kinesis does where
    /// it searches for long.
    pub empty: f64,
    /// The longest that a call takes; each takes some time between none and this.
    pub delay: Duration,
}

/// The way to the stream, with its own dice.
#[derive(Debug)]
pub(super) struct Weather(Mutex<(StdRng, Faults)>);

impl Weather {
    pub(super) fn new(seed: u64, faults: Faults) -> Self {
        Self(Mutex::new((StdRng::seed_from_u64(seed), faults)))
    }

    pub(super) fn change(&self, faults: Faults) {
        self.lock().1 = faults;
    }

    /// Takes as long as a call may take, and fails as often.
    pub(super) async fn pass(&self) -> Result<(), SourceError> {
        let delay = {
            let (dice, faults) = &mut *self.lock();
            // Thrown also where it is not needed: changed faults do not shift all later throws.
            faults.delay.mul_f64(dice.random_range(0.0..1.0))
        };
        if !delay.is_zero() {
            sleep(delay).await;
        }
        let (dice, faults) = &mut *self.lock();
        let thrown = dice.random_range(0.0..1.0);
        if thrown < faults.throttled {
            let text = "throttled, as the faults of this test say";
            return Err(SourceError::new(SourceErrorKind::Throttled, text));
        }
        if thrown < faults.throttled + faults.unavailable {
            let text = "no answer, as the faults of this test say";
            return Err(SourceError::new(SourceErrorKind::Unavailable, text));
        }
        Ok(())
    }

    /// Whether this fetch finds nothing.
    pub(super) fn hides_records(&self) -> bool {
        let (dice, faults) = &mut *self.lock();
        dice.random_range(0.0..1.0) < faults.empty
    }

    fn lock(&self) -> MutexGuard<'_, (StdRng, Faults)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
