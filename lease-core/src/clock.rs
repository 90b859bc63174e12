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

/// A point in lease time. Moments of different clocks cannot be compared.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// The moment `nanos` nanoseconds after the clock's beginning.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the clock's beginning.
    pub fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time since `earlier`; zero if `earlier` is later than `self`.
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

/// Reads lease time. Only tests replace the default clock, with `Locker::with_clock` of the feature
/// `conformance`.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The time now. Never goes back. Advances while the machine is suspended.
    fn now(&self) -> Moment;

    /// How long tokio's timer must run for this clock to advance by `length`. Override this method
    /// if the clock's rate differs from tokio's clock.
    fn timer_for(&self, length: Duration) -> Duration {
        length
    }
}

/// The clock of this machine: tokio's clock plus the time in which the machine was suspended.
///
/// On Linux, the clock adds the difference between `CLOCK_BOOTTIME` and `CLOCK_MONOTONIC`, because
/// leases expire during a suspension. In a test with paused time, this clock is paused, too.
///
/// On macOS, this clock does not count sleep. After a sleep of more than a ttl,
/// [`Lease::is_held`](crate::Lease::is_held) is wrong until the next heartbeat is answered. Use fencing
/// tokens there, or keep the machine awake.
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
        #[cfg(test)]
        readings::count();
        now()
    }
}

/// A clock that is ahead of tokio's and runs at another rate, for tests.
///
/// [`leap`](SkewedClock::leap) simulates a suspension.
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
    /// Makes a clock that is `ahead` now and runs at `rate`: 1.0 is exact, 1.01 is 1 % fast.
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
/// Each poll checks the clock, so a process that was paused notices a passed moment at its first poll. The
/// timer runs for at most `recheck`, because tokio's timer stops while the machine is suspended.
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

/// Returns the wall clock in microseconds since 1970, from which stores start their tokens. No
/// deadline depends on the wall clock.
pub fn micros_since_1970() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "the one module that reads a clock")]
    let since_1970 = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    u64::try_from(since_1970.as_micros()).unwrap_or(u64::MAX)
}

/// The time since the first reading of a clock in this process, plus `BEGINNING`, by tokio's clock alone.
/// Paused time must be constant, but measured suspensions change by microseconds at each reading.
pub(crate) fn awake() -> Moment {
    let (start, now) = (process_start(), tokio_now());
    Moment(0) + BEGINNING + now.saturating_duration_since(start)
        - start.saturating_duration_since(now)
}

/// Tokio's clock, which stops while the machine is suspended. No lease depends on it alone.
pub(crate) fn tokio_now() -> tokio::time::Instant {
    #[expect(clippy::disallowed_methods, reason = "the one module that reads a clock")]
    tokio::time::Instant::now()
}

fn process_start() -> tokio::time::Instant {
    START.get_or_init(Start::now).instant.into()
}

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

/// Boot time is read first: an interruption between the reads makes the measured suspension too small,
/// never too large. Suspensions only add up, so the largest measured total is the best estimate.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn now() -> Moment {
    static LONGEST_SEEN: AtomicU64 = AtomicU64::new(0);

    let boot = nanos(ClockId::Boottime);
    let awake = awake();
    let longest = LONGEST_SEEN.load(Ordering::Relaxed);
    // tokio's time is `CLOCK_MONOTONIC`, so two reads show whether the machine was suspended since the last
    // call. After a suspension, or in paused time, a third read measures all suspensions.
    let start = START.get_or_init(Start::now).monotonic;
    let monotonic =
        start.saturating_add(awake.as_nanos()).saturating_sub((Moment(0) + BEGINNING).as_nanos());
    if boot.saturating_sub(monotonic).abs_diff(longest) <= UNNOTICED {
        return awake + Duration::from_nanos(longest);
    }
    let seen = boot.saturating_sub(nanos(ClockId::Monotonic));
    awake + Duration::from_nanos(LONGEST_SEEN.fetch_max(seen, Ordering::Relaxed).max(seen))
}

/// macOS does not report suspensions. On Windows, `Instant` counts suspensions.
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

/// The clock starts at one day: tokio's paused time may be earlier than `process_start`, and a
/// moment cannot be negative.
const BEGINNING: Duration = Duration::from_secs(86_400);

/// In nanoseconds. Every suspension of a machine is longer. A deadline allows 2 ms for late timers.
#[cfg(any(target_os = "linux", target_os = "android"))]
const UNNOTICED: u64 = 100_000;

/// Counts the readings of lease time and of stopwatches on this thread.
#[cfg(test)]
pub(crate) mod readings {
    use std::cell::Cell;

    thread_local! {
        static READINGS: Cell<u64> = const { Cell::new(0) };
    }

    pub(crate) fn count() {
        READINGS.set(READINGS.get() + 1);
    }

    pub(crate) fn so_far() -> u64 {
        READINGS.get()
    }
}
