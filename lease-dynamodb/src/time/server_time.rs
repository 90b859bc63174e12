//! DynamoDB's own time, as far as its answers tell it.
//!
//! Each answer carries a `Date` header. It was written at some moment between the sending of
//! the request and the receipt of the answer, and it counts whole seconds: so at that moment
//! DynamoDB's time was at least `Date` and less than `Date` + 1 s. Two lines follow, on this
//! process' lease time with its rate error ρ:
//!
//! - *lowest*: `Date` at the receipt, and from there on at the rate 1 − ρ;
//! - *highest*: `Date` + 1 s at the sending, and from there on at the rate 1 + ρ.
//!
//! A process that is stopped between the two makes them wider apart, never wrong. The tightest
//! lines of all answers are kept.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lease_core::{Clock, Moment};

/// Between which times DynamoDB's own now lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Now {
    /// No later than the true time.
    pub(crate) lowest: Timestamp,
    /// No earlier than the true time.
    pub(crate) highest: Timestamp,
}

/// Nanoseconds since 1970 in DynamoDB's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Timestamp(u128);

impl Timestamp {
    pub(crate) fn from_seconds(seconds: u64) -> Self {
        Self::from_duration(Duration::from_secs(seconds))
    }

    pub(crate) fn from_millis(millis: u64) -> Self {
        Self::from_duration(Duration::from_millis(millis))
    }

    /// Whole milliseconds, rounded up: an expiry may be late, never early.
    pub(crate) fn as_millis_up(self) -> u64 {
        u64::try_from(self.0.div_ceil(1_000_000)).unwrap_or(u64::MAX)
    }

    /// Whole milliseconds, rounded down: what has passed for certain.
    pub(crate) fn as_millis_down(self) -> u64 {
        u64::try_from(self.0 / 1_000_000).unwrap_or(u64::MAX)
    }

    pub(crate) fn as_micros(self) -> u64 {
        u64::try_from(self.0 / 1_000).unwrap_or(u64::MAX)
    }

    pub(crate) fn as_seconds(self) -> u64 {
        u64::try_from(self.0 / 1_000_000_000).unwrap_or(u64::MAX)
    }

    pub(crate) fn plus(self, length: Duration) -> Self {
        Self(self.0.saturating_add(length.as_nanos()))
    }

    pub(crate) fn minus(self, length: Duration) -> Self {
        Self(self.0.saturating_sub(length.as_nanos()))
    }

    /// How long after `earlier` this is; zero if it is not.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        let nanos = self.0.saturating_sub(earlier.0);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    fn from_duration(since_1970: Duration) -> Self {
        Self(since_1970.as_nanos())
    }
}

/// What one store has learned of DynamoDB's time.
#[derive(Debug)]
pub(crate) struct ServerTime {
    clock: Arc<dyn Clock>,
    rate_error: f64,
    lines: Mutex<Option<Lines>>,
}

#[derive(Debug, Clone, Copy)]
struct Lines {
    lowest: Line,
    highest: Line,
}

/// A time in DynamoDB, and the moment here to which it belongs.
#[derive(Debug, Clone, Copy)]
struct Line {
    time: Timestamp,
    at: Moment,
}

impl ServerTime {
    pub(crate) fn new(clock: Arc<dyn Clock>, rate_error: f64) -> Self {
        Self { clock, rate_error, lines: Mutex::new(None) }
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// DynamoDB's time now; `None` before its first answer.
    pub(crate) fn now(&self) -> Option<Now> {
        let lines = self.lines();
        // Read under the lock, so that no line begins later.
        let now = self.clock.now();
        (*lines).map(|lines| self.at(lines, now))
    }

    /// Learns from an answer that was dated `date`, in seconds since 1970.
    ///
    /// Where it contradicts what was learned before, a clock has jumped, here or there: all is
    /// forgotten, this answer included, until the next one.
    pub(crate) fn learn(&self, sent: Moment, received: Moment, date: u64) {
        let date = Timestamp::from_seconds(date);
        let heard = Lines {
            lowest: Line { time: date, at: received },
            highest: Line { time: date.plus(Duration::from_secs(1)), at: sent },
        };

        let mut lines = self.lines();
        let now = self.clock.now();
        let tightest = match *lines {
            None => heard,
            Some(known) => Lines {
                lowest: if self.lowest(heard, now) > self.lowest(known, now) {
                    heard.lowest
                } else {
                    known.lowest
                },
                highest: if self.highest(heard, now) < self.highest(known, now) {
                    heard.highest
                } else {
                    known.highest
                },
            },
        };
        let possible = self.lowest(tightest, now) <= self.highest(tightest, now);
        *lines = possible.then_some(tightest);
    }

    /// `length` of DynamoDB's time on this clock, whichever of the two runs faster.
    pub(crate) fn surely(&self, length: Duration) -> Duration {
        length.mul_f64(1.0 + self.rate_error)
    }

    fn at(&self, lines: Lines, now: Moment) -> Now {
        Now { lowest: self.lowest(lines, now), highest: self.highest(lines, now) }
    }

    fn lowest(&self, lines: Lines, now: Moment) -> Timestamp {
        let age = now.since(lines.lowest.at);
        lines.lowest.time.plus(age.mul_f64(1.0 - self.rate_error))
    }

    fn highest(&self, lines: Lines, now: Moment) -> Timestamp {
        let age = now.since(lines.highest.at);
        lines.highest.time.plus(age.mul_f64(1.0 + self.rate_error))
    }

    fn lines(&self) -> MutexGuard<'_, Option<Lines>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// A true time, a server that dates its answers by it, and a process whose clock is wrong.
    #[derive(Debug)]
    struct World {
        /// Nanoseconds since 1970.
        truth: AtomicU64,
        ahead: AtomicU64,
        rate: f64,
    }

    const START: u64 = 1_700_000_000_300_000_000;

    impl World {
        fn new(rate: f64) -> Arc<Self> {
            Arc::new(Self { truth: START.into(), ahead: 0.into(), rate })
        }

        fn pass(&self, length: Duration) {
            let nanos = u64::try_from(length.as_nanos()).unwrap();
            self.truth.fetch_add(nanos, Ordering::SeqCst);
        }

        fn jump(&self, length: Duration) {
            let nanos = u64::try_from(length.as_nanos()).unwrap();
            self.ahead.fetch_add(nanos, Ordering::SeqCst);
        }

        fn truth(&self) -> Timestamp {
            Timestamp(self.truth.load(Ordering::SeqCst).into())
        }

        /// One request and its answer, that took `there` and `back`.
        fn ask(&self, time: &ServerTime, there: Duration, back: Duration) {
            let sent = self.now();
            self.pass(there);
            let date = self.truth().as_seconds();
            self.pass(back);
            time.learn(sent, self.now(), date);
        }
    }

    impl Clock for World {
        fn now(&self) -> Moment {
            let run = self.truth.load(Ordering::SeqCst) - START;
            let run = Duration::from_nanos(run).mul_f64(self.rate);
            Moment::from_nanos(self.ahead.load(Ordering::SeqCst)) + run
        }
    }

    const MS: Duration = Duration::from_millis(1);

    fn store_time(world: &Arc<World>) -> ServerTime {
        ServerTime::new(Arc::clone(world) as Arc<dyn Clock>, 0.01)
    }

    fn assert_true(world: &World, time: &ServerTime) -> Duration {
        let now = time.now().expect("known");
        assert!(now.lowest <= world.truth(), "{now:?} {:?}", world.truth());
        assert!(now.highest >= world.truth(), "{now:?} {:?}", world.truth());
        now.highest.since(now.lowest)
    }

    #[test]
    fn nothing_is_known_before_the_first_answer() {
        assert_eq!(store_time(&World::new(1.0)).now(), None);
    }

    #[test]
    fn the_truth_lies_between_the_lines_whatever_the_clock_and_the_delays() {
        for rate in [0.991, 1.0, 1.009] {
            let world = World::new(rate);
            let time = store_time(&world);
            let mut delay: u32 = 1;
            for _ in 0..2000 {
                delay = delay.wrapping_mul(1_664_525).wrapping_add(1_013_904_223); // any will do
                let random = delay >> 8;
                world.pass(MS * (random % 1500));
                world.ask(&time, MS * (random % 97), MS * (random % 89));
                assert_true(&world, &time);
            }
        }
    }

    #[test]
    fn one_answer_tells_it_to_a_second_and_the_round_trip() {
        let world = World::new(1.0);
        let time = store_time(&world);

        world.ask(&time, 20 * MS, 30 * MS);

        let width = assert_true(&world, &time);
        assert!(width <= Duration::from_millis(1052), "{width:?}");
    }

    #[test]
    fn several_answers_tell_it_better_than_one() {
        let world = World::new(1.0);
        let time = store_time(&world);

        for _ in 0..20 {
            world.ask(&time, 2 * MS, 2 * MS);
            world.pass(133 * MS);
        }

        let width = assert_true(&world, &time);
        assert!(width <= Duration::from_millis(250), "{width:?}");
    }

    #[test]
    fn a_silent_hour_widens_it_by_the_rate_error() {
        let world = World::new(1.005);
        let time = store_time(&world);
        world.ask(&time, MS, MS);

        world.pass(Duration::from_hours(1));

        let width = assert_true(&world, &time);
        assert!(width >= Duration::from_secs(72), "{width:?}");
    }

    #[test]
    fn a_process_stopped_before_or_after_the_answer_was_made_is_not_deceived() {
        for (there, back) in [(3600, 0), (0, 3600)] {
            let world = World::new(1.0);
            let time = store_time(&world);

            world.ask(&time, Duration::from_secs(there), Duration::from_secs(back));

            let width = assert_true(&world, &time);
            assert!(width >= Duration::from_hours(1), "{width:?}");
        }
    }

    #[test]
    fn an_answer_after_a_pause_does_not_widen_what_was_known() {
        let world = World::new(1.0);
        let time = store_time(&world);
        world.ask(&time, MS, MS);

        world.ask(&time, Duration::from_secs(30), MS);

        let width = assert_true(&world, &time);
        assert!(width <= Duration::from_secs(2), "{width:?}");
    }

    #[test]
    fn after_a_jump_nothing_is_known_until_the_next_answer() {
        let world = World::new(1.0);
        let time = store_time(&world);
        world.ask(&time, MS, MS);

        world.jump(Duration::from_mins(1)); // no time has passed in truth
        world.ask(&time, MS, MS);
        assert_eq!(time.now(), None);

        world.ask(&time, MS, MS);
        assert_true(&world, &time);
    }

    #[test]
    fn a_server_whose_clock_is_set_back_is_noticed() {
        let world = World::new(1.0);
        let time = store_time(&world);
        world.ask(&time, MS, MS);

        let date = world.truth().as_seconds() - 5;
        time.learn(world.now(), world.now(), date);

        assert_eq!(time.now(), None);
    }
}
