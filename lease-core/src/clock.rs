//! Lease time. No other module reads a clock.

use std::fmt;
use std::future::{Future, poll_fn};
use std::ops::{Add, Sub};
use std::pin::pin;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

#[cfg(any(target_os = "linux", target_os = "android"))]
use rustix::time::{ClockId, clock_gettime};

/// A point in lease time. Only the difference of two moments of one clock has a meaning.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// The moment `nanos` nanoseconds after a clock's own beginning.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the clock's own beginning.
    pub fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time since `earlier`; zero if `earlier` is later than this.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, length: Duration) -> Self {
        let nanos = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }
}

impl Sub<Duration> for Moment {
    type Output = Self;

    fn sub(self, length: Duration) -> Self {
        let nanos = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_sub(nanos))
    }
}

impl fmt::Debug for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&Duration::from_nanos(self.0), f)
    }
}

/// Reads lease time. A holder compares it with the deadline of its lease.
///
/// Only tests replace the default clock, by clocks that run fast or slow, or that jump. The feature
/// `conformance` has `Locker::with_clock` and `conformance::SkewedClock` for this.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The time now. Never goes back, and advances while the machine is suspended.
    fn now(&self) -> Moment;

    /// How long tokio's timer must run for this clock to advance by `length`.
    ///
    /// A clock whose rate differs from tokio's clock overrides this method.
    fn timer_for(&self, length: Duration) -> Duration {
        length
    }
}

/// The clock of this machine: tokio's, plus the time that the machine was suspended.
///
/// tokio's clock and `Instant` stop while Linux is suspended, but leases still expire. So this clock adds
/// the difference between `CLOCK_MONOTONIC` and `CLOCK_BOOTTIME`. In a test with paused time, this clock
/// is paused, too.
///
/// On macOS, this clock does not count the time in which the machine sleeps. After a sleep of more than a
/// ttl, [`Lease::is_held`](crate::Lease::is_held) is wrong until the next heartbeat is answered. Use
/// fencing tokens there, or keep the machine awake. On Windows, `Instant` counts this time.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct BootClock;

impl BootClock {
    /// Returns the clock of this machine.
    pub fn new() -> Self {
        Self
    }
}

impl Clock for BootClock {
    fn now(&self) -> Moment {
        now()
    }
}

/// A clock that is ahead of tokio's and runs at another rate, for tests.
///
/// It does not count suspensions of this machine. A test simulates a suspension with
/// [`leap`](SkewedClock::leap).
///
/// # Examples
///
/// A process whose clock is an hour ahead and runs 0.5 % fast:
///
/// ```
/// use std::time::Duration;
/// use lease_core::conformance::SkewedClock;
/// use lease_core::store::Clock;
///
/// let clock = SkewedClock::new(Duration::from_secs(3600), 1.005);
/// let before = clock.now();
/// clock.leap(Duration::from_secs(60)); // the machine slept for a minute
/// assert!(clock.now().since(before) >= Duration::from_secs(60));
/// ```
#[cfg(feature = "conformance")]
#[derive(Debug)]
pub struct SkewedClock {
    born: Moment,
    ahead: AtomicU64,
    rate: f64,
}

#[cfg(feature = "conformance")]
impl SkewedClock {
    /// Makes a clock that is `ahead` now and runs at `rate` from now on: 1.0 is exact, 1.01 is 1 % fast.
    ///
    /// # Panics
    ///
    /// If `rate` is not 0.01 to 100.
    pub fn new(ahead: Duration, rate: f64) -> Self {
        assert!((0.01..=100.0).contains(&rate), "a clock's rate is 0.01 to 100, not {rate}");
        let ahead = (Moment(0) + ahead).0;
        Self { born: awake(), ahead: ahead.into(), rate }
    }

    /// Moves the clock ahead by `length`, as the wake-up of a suspended machine does.
    pub fn leap(&self, length: Duration) {
        let nanos = (Moment(0) + length).0;
        let ahead = &self.ahead;
        let add = |ahead: u64| Some(ahead.saturating_add(nanos));
        // `add` always returns a value, so `fetch_update` cannot fail.
        let _ = ahead.fetch_update(Ordering::SeqCst, Ordering::SeqCst, add);
    }
}

#[cfg(feature = "conformance")]
impl Clock for SkewedClock {
    fn now(&self) -> Moment {
        let run = awake().since(self.born).mul_f64(self.rate);
        let ahead = self.ahead.load(Ordering::SeqCst);
        self.born + run + Duration::from_nanos(ahead)
    }

    fn timer_for(&self, length: Duration) -> Duration {
        length.div_f64(self.rate)
    }
}

/// Completes once `clock` has reached `moment`.
///
/// Each poll checks the clock, so that a process that was paused or suspended notices a passed moment at
/// its first poll. The timer never runs for longer than `recheck`, since it stops while the machine is
/// suspended.
pub(crate) async fn sleep_until(clock: &dyn Clock, moment: Moment, recheck: Duration) {
    loop {
        let left = moment.since(clock.now());
        if left.is_zero() {
            return;
        }
        let mut timer = pin!(tokio::time::sleep(clock.timer_for(left.min(recheck))));
        poll_fn(
            |context| {
                if clock.now() < moment { timer.as_mut().poll(context) } else { Poll::Ready(()) }
            },
        )
        .await;
    }
}

/// Returns the wall clock in microseconds since 1970. Stores in this process start their tokens from this time.
/// No deadline depends on this time.
pub fn micros_since_1970() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "the one module that reads a clock")]
    let since_1970 = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    u64::try_from(since_1970.as_micros()).unwrap_or(u64::MAX)
}

/// The time since the first reading of a clock in this process, plus `BEGINNING`, by tokio's clock alone. While
/// tokio's time is paused, this time is constant. A clock that adds measured suspensions is not constant
/// then, because the measured suspensions change by a few microseconds at each reading.
pub(crate) fn awake() -> Moment {
    let (start, now) = (process_start(), tokio_now());
    Moment(0) + BEGINNING + now.saturating_duration_since(start)
        - start.saturating_duration_since(now)
}

fn tokio_now() -> tokio::time::Instant {
    #[expect(clippy::disallowed_methods, reason = "the one module that reads a clock")]
    tokio::time::Instant::now()
}

fn process_start() -> tokio::time::Instant {
    START.get_or_init(Start::now).instant.into()
}

/// The moment from which this process counts time.
struct Start {
    instant: std::time::Instant,
    /// `instant` as `CLOCK_MONOTONIC` reports it, in nanoseconds. May be slightly earlier.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    monotonic: u64,
}

static START: OnceLock<Start> = OnceLock::new();

impl Start {
    fn now() -> Self {
        Self {
            #[cfg(any(target_os = "linux", target_os = "android"))]
            monotonic: nanos(ClockId::Monotonic),
            #[expect(clippy::disallowed_methods, reason = "the one module that reads a clock")]
            instant: std::time::Instant::now(),
        }
    }
}

/// Returns the time of this machine's clock.
///
/// Boot time is read first: an interruption between the reads makes the measured suspension too small, never
/// too large. The true total of suspensions only grows, so the largest measured total is the best estimate.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn now() -> Moment {
    static LONGEST_SEEN: AtomicU64 = AtomicU64::new(0);

    let boot = nanos(ClockId::Boottime);
    let awake = awake();
    let longest = LONGEST_SEEN.load(Ordering::Relaxed);
    // If tokio's time is not paused, it is `CLOCK_MONOTONIC`. Two reads then show whether the machine was
    // suspended since the last call. After a suspension, or if tokio's time is paused, a third read measures
    // all suspensions.
    let start = START.get_or_init(Start::now).monotonic;
    let monotonic =
        start.saturating_add(awake.as_nanos()).saturating_sub((Moment(0) + BEGINNING).as_nanos());
    if boot.saturating_sub(monotonic).abs_diff(longest) <= UNNOTICED {
        return awake + Duration::from_nanos(longest);
    }
    let seen = boot.saturating_sub(nanos(ClockId::Monotonic));
    awake + Duration::from_nanos(LONGEST_SEEN.fetch_max(seen, Ordering::Relaxed).max(seen))
}

/// macOS does not report the time of a suspension. On Windows, `Instant` includes it.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn now() -> Moment {
    awake()
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// The clock starts at one day, not at zero: tokio's paused time may be earlier than `process_start`, and a
/// moment cannot be negative.
const BEGINNING: Duration = Duration::from_secs(86_400);

/// The longest suspended time that the clock ignores, in nanoseconds. A deadline allows 2 ms for late timers,
/// and each suspension of a machine takes longer than 100 µs.
#[cfg(any(target_os = "linux", target_os = "android"))]
const UNNOTICED: u64 = 100_000;
