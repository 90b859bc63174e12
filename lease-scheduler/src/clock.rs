//! The time of day: the one room in which a wall clock is read.

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use lease_core::{BootClock, Clock, Moment};

/// Tells the time of day, by which ticks come due. No lease is judged by it.
///
/// It may be wrong, step and drift. Whoever is ahead is the first to find a tick due, and nobody
/// runs a tick again.
pub trait WallClock: fmt::Debug + Send + Sync + 'static {
    /// The time now.
    fn now(&self) -> Timestamp;

    /// How long tokio's timer must run for this clock to advance by `length`.
    ///
    /// A clock whose rate is not tokio's overrides this.
    fn timer_for(&self, length: Duration) -> Duration {
        length
    }
}

/// The clock of this machine.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct SystemWallClock;

impl SystemWallClock {
    /// The clock of this machine.
    pub fn new() -> Self {
        Self
    }
}

impl WallClock for SystemWallClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// A clock that goes by tokio's time, from where and at what rate a test says.
///
/// In a test whose time is paused, it passes as fast as the test can await it.
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
/// clock.step(SignedDuration::from_hours(-1)); // somebody has set it right, as he thinks
/// assert!(clock.now() < three);
/// # Ok::<_, lease_scheduler::jiff::Error>(())
/// ```
#[derive(Debug)]
pub struct SkewedWallClock {
    start: Timestamp,
    born: Moment,
    rate: f64,
    /// In nanoseconds.
    stepped: AtomicI64,
}

impl SkewedWallClock {
    /// A clock that says `start` now, and from here on runs at `rate` (1.0 is right, 1.01 is 1 %
    /// fast).
    ///
    /// # Panics
    ///
    /// Where `rate` is not 0.01 to 100,000: so fast that a year passes in five minutes.
    pub fn new(start: Timestamp, rate: f64) -> Self {
        assert!((0.01..=100_000.0).contains(&rate), "a clock's rate is 0.01 to 100,000: {rate}");
        Self { start, born: BootClock::new().now(), rate, stepped: AtomicI64::new(0) }
    }

    /// Sets it forward by `length`, or back.
    pub fn step(&self, length: SignedDuration) {
        let nanos = i64::try_from(length.as_nanos()).unwrap_or(i64::MAX);
        self.stepped.fetch_add(nanos, Ordering::SeqCst);
    }
}

impl WallClock for SkewedWallClock {
    fn now(&self) -> Timestamp {
        let run = BootClock::new().now().since(self.born).mul_f64(self.rate);
        let stepped = SignedDuration::from_nanos(self.stepped.load(Ordering::SeqCst));
        let gone = SignedDuration::try_from(run).unwrap_or(SignedDuration::MAX);
        self.start.saturating_add(gone.saturating_add(stepped)).unwrap_or(Timestamp::MAX)
    }

    fn timer_for(&self, length: Duration) -> Duration {
        length.div_f64(self.rate)
    }
}
