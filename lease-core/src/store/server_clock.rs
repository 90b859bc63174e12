//! Bounds of a server's own time, computed from the dates of its answers.
//!
//! Each answer has a date. The server wrote it between the sending of the request and the receipt of the
//! answer, in whole seconds. So at that moment the server's time was at least the date and less than the date + 1 s.
//! This gives two bounds. They use the lease time of this process, and the error ρ of its rate:
//!
//! - *lowest* equals the date at the receipt, and then increases at the rate 1 − ρ;
//! - *highest* equals the date + 1 s at the sending, and then increases at the rate 1 + ρ.
//!
//! A pause between sending and receipt widens the bounds, but they stay correct. A store keeps
//! the tightest bounds of all answers.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use crate::clock::{Clock, Moment};

/// Bounds of the server's current time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "two bounds, and no more")]
pub struct ServerNow {
    /// The lower bound: not later than the true time.
    pub lowest: Timestamp,
    /// The upper bound: not earlier than the true time.
    pub highest: Timestamp,
}

/// A time of a server, in nanoseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(u128);

impl Timestamp {
    /// A time in whole seconds since 1970.
    pub fn from_seconds(seconds: u64) -> Self {
        Self::from_duration(Duration::from_secs(seconds))
    }

    /// A time in whole milliseconds since 1970.
    pub fn from_millis(millis: u64) -> Self {
        Self::from_duration(Duration::from_millis(millis))
    }

    /// Whole milliseconds, rounded up: an expiry may be late, but never early.
    pub fn as_millis_up(self) -> u64 {
        u64::try_from(self.0.div_ceil(1_000_000)).unwrap_or(u64::MAX)
    }

    /// Whole milliseconds, rounded down: a lower bound may be too early, but never too late.
    pub fn as_millis_down(self) -> u64 {
        u64::try_from(self.0 / 1_000_000).unwrap_or(u64::MAX)
    }

    /// Whole microseconds, rounded down.
    pub fn as_micros(self) -> u64 {
        u64::try_from(self.0 / 1_000).unwrap_or(u64::MAX)
    }

    /// Whole seconds, rounded down.
    pub fn as_seconds(self) -> u64 {
        u64::try_from(self.0 / 1_000_000_000).unwrap_or(u64::MAX)
    }

    /// The time `length` later.
    #[must_use]
    pub fn plus(self, length: Duration) -> Self {
        Self(self.0.saturating_add(length.as_nanos()))
    }

    /// The time `length` earlier, but not before 1970.
    #[must_use]
    pub fn minus(self, length: Duration) -> Self {
        Self(self.0.saturating_sub(length.as_nanos()))
    }

    /// Returns the time since `earlier`; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        let nanos = self.0.saturating_sub(earlier.0);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    fn from_duration(since_1970: Duration) -> Self {
        Self(since_1970.as_nanos())
    }
}

/// Computes bounds of a server's time from the dates of its answers, for one store.
///
/// The server may consist of several machines. Their clocks must then differ by less than a margin, which the store
/// adds to each expiry.
#[derive(Debug)]
pub struct ServerClock {
    clock: Arc<dyn Clock>,
    rate_error: f64,
    bounds: Mutex<Option<Bounds>>,
}

#[derive(Debug, Clone, Copy)]
struct Bounds {
    lowest: Bound,
    highest: Bound,
}

/// A time of the server, and the moment of this process that it belongs to.
#[derive(Debug, Clone, Copy)]
struct Bound {
    time: Timestamp,
    at: Moment,
}

impl ServerClock {
    /// Makes a clock without any answer yet. `rate_error` is the largest relative difference between the rates of
    /// `clock` and of the server's clock: 0 to 0.1.
    pub fn new(clock: Arc<dyn Clock>, rate_error: f64) -> Self {
        Self { clock, rate_error, bounds: Mutex::new(None) }
    }

    /// The clock of this process. Read it before a request and after its answer, for [`add_answer`](Self::add_answer).
    pub fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// Returns bounds of the server's time; `None` before the first answer.
    pub fn now(&self) -> Option<ServerNow> {
        let bounds = self.lock();
        // Read under the lock, so that no bound begins after `now`.
        let now = self.clock.now();
        (*bounds).map(|bounds| self.at(bounds, now))
    }

    /// Adds an answer with the date `date`, in seconds since 1970.
    ///
    /// If the answer contradicts the earlier answers, a clock has stepped, at the server or on this machine.
    /// Then the store forgets all answers, including this answer.
    pub fn add_answer(&self, sent: Moment, received: Moment, date: u64) {
        let date = Timestamp::from_seconds(date);
        let new = Bounds {
            lowest: Bound { time: date, at: received },
            highest: Bound { time: date.plus(Duration::from_secs(1)), at: sent },
        };

        let mut bounds = self.lock();
        let now = self.clock.now();
        let tightest = match *bounds {
            None => new,
            Some(known) => Bounds {
                lowest: if self.lowest(new, now) > self.lowest(known, now) {
                    new.lowest
                } else {
                    known.lowest
                },
                highest: if self.highest(new, now) < self.highest(known, now) {
                    new.highest
                } else {
                    known.highest
                },
            },
        };
        let consistent = self.lowest(tightest, now) <= self.highest(tightest, now);
        *bounds = consistent.then_some(tightest);
    }

    /// Returns how long to wait by this clock until `length` has certainly passed at the server.
    pub fn with_skew(&self, length: Duration) -> Duration {
        length.mul_f64(1.0 + self.rate_error)
    }

    /// Returns how long to wait by this clock until the lower bound of the server's time has advanced by
    /// `length`.
    pub fn until_lowest(&self, length: Duration) -> Duration {
        length.div_f64(1.0 - self.rate_error)
    }

    fn at(&self, bounds: Bounds, now: Moment) -> ServerNow {
        ServerNow { lowest: self.lowest(bounds, now), highest: self.highest(bounds, now) }
    }

    fn lowest(&self, bounds: Bounds, now: Moment) -> Timestamp {
        let age = now.since(bounds.lowest.at);
        bounds.lowest.time.plus(age.mul_f64(1.0 - self.rate_error))
    }

    fn highest(&self, bounds: Bounds, now: Moment) -> Timestamp {
        let age = now.since(bounds.highest.at);
        bounds.highest.time.plus(age.mul_f64(1.0 + self.rate_error))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Bounds>> {
        self.bounds.lock()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// A server that dates its answers by the true time, and a process whose clock is wrong.
    #[derive(Debug)]
    struct ClockModel {
        /// Nanoseconds since 1970.
        truth: AtomicU64,
        step: AtomicU64,
        rate: f64,
    }

    const START: u64 = 1_700_000_000_300_000_000;

    impl ClockModel {
        fn new(rate: f64) -> Arc<Self> {
            Arc::new(Self { truth: START.into(), step: 0.into(), rate })
        }

        fn advance(&self, length: Duration) {
            let nanos = u64::try_from(length.as_nanos()).unwrap();
            self.truth.fetch_add(nanos, Ordering::SeqCst);
        }

        fn step_clock(&self, length: Duration) {
            let nanos = u64::try_from(length.as_nanos()).unwrap();
            self.step.fetch_add(nanos, Ordering::SeqCst);
        }

        fn truth(&self) -> Timestamp {
            Timestamp(self.truth.load(Ordering::SeqCst).into())
        }

        /// Sends a request that takes `there` to arrive, and whose answer takes `back`.
        fn request(&self, time: &ServerClock, there: Duration, back: Duration) {
            let sent = self.now();
            self.advance(there);
            let date = self.truth().as_seconds();
            self.advance(back);
            time.add_answer(sent, self.now(), date);
        }
    }

    impl Clock for ClockModel {
        fn now(&self) -> Moment {
            let run = self.truth.load(Ordering::SeqCst) - START;
            let run = Duration::from_nanos(run).mul_f64(self.rate);
            Moment::from_nanos(self.step.load(Ordering::SeqCst)) + run
        }
    }

    const MS: Duration = Duration::from_millis(1);

    fn store_time(model: &Arc<ClockModel>) -> ServerClock {
        ServerClock::new(Arc::clone(model) as Arc<dyn Clock>, 0.01)
    }

    /// Checks that the true time is within the bounds. Returns their distance.
    fn assert_true(model: &ClockModel, time: &ServerClock) -> Duration {
        let now = time.now().expect("known");
        assert!(now.lowest <= model.truth(), "{now:?} {:?}", model.truth());
        assert!(now.highest >= model.truth(), "{now:?} {:?}", model.truth());
        now.highest.since(now.lowest)
    }

    #[test]
    fn time_is_unknown_before_first_answer() {
        assert_eq!(store_time(&ClockModel::new(1.0)).now(), None);
    }

    #[test]
    fn true_time_is_within_bounds_for_all_delays_and_rates() {
        for rate in [0.991, 1.0, 1.009] {
            let model = ClockModel::new(rate);
            let time = store_time(&model);
            let mut delay: u32 = 1;
            for _ in 0..2000 {
                // A linear congruential generator.
                delay = delay.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let random = delay >> 8;
                model.advance(MS * (random % 1500));
                model.request(&time, MS * (random % 97), MS * (random % 89));
                assert_true(&model, &time);
            }
        }
    }

    #[test]
    fn one_answer_bounds_time_to_one_second_and_round_trip() {
        let model = ClockModel::new(1.0);
        let time = store_time(&model);

        model.request(&time, 20 * MS, 30 * MS);

        let width = assert_true(&model, &time);
        assert!(width <= Duration::from_millis(1052), "{width:?}");
    }

    #[test]
    fn several_answers_tighten_the_bounds() {
        let model = ClockModel::new(1.0);
        let time = store_time(&model);

        for _ in 0..20 {
            model.request(&time, 2 * MS, 2 * MS);
            model.advance(133 * MS);
        }

        let width = assert_true(&model, &time);
        assert!(width <= Duration::from_millis(250), "{width:?}");
    }

    #[test]
    fn hour_without_answers_widens_bounds_by_rate_error() {
        let model = ClockModel::new(1.005);
        let time = store_time(&model);
        model.request(&time, MS, MS);

        model.advance(Duration::from_secs(3600));

        let width = assert_true(&model, &time);
        assert!(width >= Duration::from_secs(72), "{width:?}");
    }

    #[test]
    fn pause_of_process_widens_bounds_but_keeps_them_true() {
        for (there, back) in [(3600, 0), (0, 3600)] {
            let model = ClockModel::new(1.0);
            let time = store_time(&model);

            model.request(&time, Duration::from_secs(there), Duration::from_secs(back));

            let width = assert_true(&model, &time);
            assert!(width >= Duration::from_secs(3600), "{width:?}");
        }
    }

    #[test]
    fn answer_after_pause_does_not_widen_bounds() {
        let model = ClockModel::new(1.0);
        let time = store_time(&model);
        model.request(&time, MS, MS);

        model.request(&time, Duration::from_secs(30), MS);

        let width = assert_true(&model, &time);
        assert!(width <= Duration::from_secs(2), "{width:?}");
    }

    #[test]
    fn clock_step_makes_time_unknown_until_next_answer() {
        let model = ClockModel::new(1.0);
        let time = store_time(&model);
        model.request(&time, MS, MS);

        model.step_clock(Duration::from_secs(60)); // no true time passes
        model.request(&time, MS, MS);
        assert_eq!(time.now(), None);

        model.request(&time, MS, MS);
        assert_true(&model, &time);
    }

    #[test]
    fn server_clock_that_steps_back_makes_time_unknown() {
        let model = ClockModel::new(1.0);
        let time = store_time(&model);
        model.request(&time, MS, MS);

        let date = model.truth().as_seconds() - 5;
        time.add_answer(model.now(), model.now(), date);

        assert_eq!(time.now(), None);
    }
}
