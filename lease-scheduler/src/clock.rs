//! The time of day. This is the only file that reads a wall clock.

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use lease_core::store::{BootClock, Clock, Moment};

/// Reads the time of day, which decides when ticks are due. Leases do not depend on it.
///
/// The clock may be wrong, may step and may drift. The machine whose clock is ahead starts a tick first,
/// and no other machine starts that tick again.
pub trait WallClock: fmt::Debug + Send + Sync + 'static {
    /// Returns the current time.
    fn now(&self) -> Timestamp;

    /// Returns how long tokio's timer must run for this clock to advance by `length`.
    ///
    /// A clock that runs at another rate than tokio's timer overrides this method.
    fn timer_for(&self, length: Duration) -> Duration {
        length
    }
}

/// Reads the clock of this machine.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct SystemWallClock;

impl SystemWallClock {
    /// Creates the clock.
    pub fn new() -> Self {
        Self
    }
}

impl WallClock for SystemWallClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// A clock for tests: it follows tokio's time, from a given start and at a given rate.
///
/// If the test pauses tokio's time, this clock advances with it.
///
/// # Examples
///
/// Three in the morning, on a machine whose clock is a minute ahead and 0.1 % fast:
///
/// ```
/// use lease_scheduler::jiff::{SignedDuration, Timestamp};
/// use lease_scheduler::{SkewedWallClock, WallClock};
///
/// let three: Timestamp = "2026-11-21T03:00:00Z".parse()?;
/// let clock = SkewedWallClock::new(three + SignedDuration::from_mins(1), 1.001);
/// clock.step(SignedDuration::from_hours(-1)); // an operator sets it back by an hour
/// assert!(clock.now() < three);
/// # Ok::<_, lease_scheduler::jiff::Error>(())
/// ```
#[derive(Debug)]
pub struct SkewedWallClock {
    start: Timestamp,
    created: Moment,
    rate: f64,
    /// The sum of all steps, in nanoseconds.
    stepped: AtomicI64,
}

impl SkewedWallClock {
    /// Creates a clock that shows `start` now and runs at `rate`: 1.0 is exact, 1.01 is 1 % fast.
    ///
    /// # Panics
    ///
    /// If `rate` is not 0.01 to 100,000. At the largest rate, a year passes in five minutes.
    pub fn new(start: Timestamp, rate: f64) -> Self {
        assert!((0.01..=100_000.0).contains(&rate), "a clock's rate is 0.01 to 100,000: {rate}");
        Self { start, created: BootClock::new().now(), rate, stepped: AtomicI64::new(0) }
    }

    /// Sets the clock forward by `length`, or back if `length` is negative.
    pub fn step(&self, length: SignedDuration) {
        let nanos = i64::try_from(length.as_nanos()).unwrap_or(i64::MAX);
        self.stepped.fetch_add(nanos, Ordering::SeqCst);
    }
}

impl WallClock for SkewedWallClock {
    fn now(&self) -> Timestamp {
        let run = BootClock::new().now().since(self.created).mul_f64(self.rate);
        let stepped = SignedDuration::from_nanos(self.stepped.load(Ordering::SeqCst));
        let gone = SignedDuration::try_from(run).unwrap_or(SignedDuration::MAX);
        self.start.saturating_add(gone.saturating_add(stepped)).unwrap_or(Timestamp::MAX)
    }

    fn timer_for(&self, length: Duration) -> Duration {
        length.div_f64(self.rate)
    }
}
