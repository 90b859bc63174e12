//! Schedules: which ticks a job has, as a pure function of the time.
//!
//! `mod.rs` has [`Schedule`] and the rules for late ticks, `cron.rs` the instants of a cron expression in
//! a time zone, `missed.rs` ranges of missed ticks. `oracle.rs` computes ticks independently, for tests.

use std::fmt;
use std::hash::Hasher;
use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use lease_core::{InvalidInput, LeaseKey};
use siphasher::sip::SipHasher13;

use self::cron::CronTimes;
pub use self::missed::MissedTicks;

mod cron;
mod missed;

/// Computes the ticks of a job: the times at which it is due.
///
/// A schedule has no state and reads no clock. It returns the same ticks to every caller, so a fleet
/// agrees on them without communication.
///
/// # Daylight saving
///
/// A cron expression has **fixed times** if its seconds, minutes and hours contain no asterisk. Lists
/// and ranges are fixed times: `30 2 * * *`, `0 2,14 * * *`, `0-59/10 1-3 * * *`. With an asterisk in
/// one of these fields, also as a step (`*/15 * * * *`, `0 */2 * * *`), it **follows the wall clock**.
/// The other fields do not matter.
///
/// | | time that the clock leaves out | time that the clock shows twice |
/// |---|---|---|
/// | fixed times | at the first moment after the gap | once, at the first of the two |
/// | following the wall clock | left out | both times |
///
/// So each fixed time runs exactly once a day, and `*/15 * * * *` runs once in each quarter of an hour
/// that passes. Several fixed times that fall into one gap, or at its end, share one tick. For example,
/// when Berlin leaves out 2:00 to 3:00, `0,30 2,3 * * *` runs at 3:00 and 3:30. The times of an hourly list,
/// such as `0 0-23 * * *`, are two hours apart once in autumn; ticks of `0 * * * *` are not. A step of hours
/// can lose a run: `0 */2 * * *` has no tick at 2:00 when the clock leaves 2:00 out.
///
/// These are the rules of Vixie's cron. As in that cron, a gap of more than three hours does not count as
/// daylight saving: its times are left out. Such gaps occur where a zone crosses the date line, as Samoa did in
/// 2011. Intervals do not depend on a zone.
///
/// # Examples
///
/// ```
/// use lease_scheduler::jiff::Timestamp;
/// use lease_scheduler::Schedule;
///
/// let nightly = Schedule::cron("0 3 * * *", "Europe/Berlin")?;
/// let noon: Timestamp = "2026-03-28T12:00:00Z".parse()?;
/// let night = nightly.next(noon).ok_or("none")?;
/// assert_eq!(night.to_string(), "2026-03-29T01:00:00Z"); // daylight saving has begun: 3:00 is 1:00 in UTC
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq)]
pub struct Schedule(When);

#[derive(Clone, PartialEq)]
enum When {
    /// `last` is the last tick of all; `Timestamp::MAX` if none is known.
    Cron {
        times: CronTimes,
        last: Timestamp,
    },
    Every {
        interval: SignedDuration,
        jitter: SignedDuration,
        salt: u64,
    },
    Once(Timestamp),
    OnDemand,
}

/// Decides whether a late tick still runs. A tick is late if no scheduler ran at its time, or the last run had
/// not ended.
///
/// A tick stays due at most until the next one is due: of several late ticks, only the last is ever run. The
/// others are reported as [missed](crate::Outcome::Missed).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a late tick has a limit or it has none")]
pub enum Misfire {
    /// The first attempt may start up to this long after its tick, by the clock of each machine. The length
    /// is at least a second. Later, the tick is missed. A tick that the clock has just stepped over may still
    /// start, if the step was shorter than a minute.
    StartWithin(Duration),
    /// The tick runs as soon as a machine can start it. Ticks before the job was first seen do not count.
    CatchUpOnce,
}

impl Schedule {
    /// Creates a schedule of the times of a cron `expression`, in the time zone `zone` of the IANA
    /// database, such as `Europe/Berlin` or `UTC`.
    ///
    /// Five fields: minute, hour, day of the month, month, day of the week; seconds before them and a
    /// year after them are optional. `croner` parses them. It accepts names of months and days,
    /// `@daily` and similar names, `L`, `W` and `#`.
    ///
    /// As in Vixie's cron, a day fits if it fits either field for days: `0 0 1 * MON` runs on each
    /// first and each Monday. If one of the two fields contains an asterisk, the day must fit both:
    /// `0 0 */2 * MON` runs on Mondays with an odd date. `+MON` requires both, too.
    ///
    /// If all years of the expression are over, the schedule has no further ticks. This is no error: a schedule
    /// reads no clock, and a program must be able to restart after its last tick. If no tick ever ran, the
    /// scheduler warns.
    ///
    /// # Errors
    ///
    /// If the expression cannot be parsed or names no day since 1970, or if the zone is unknown.
    pub fn cron(expression: &str, zone: &str) -> Result<Self, InvalidInput> {
        let zone = TimeZone::get(zone)
            .map_err(|error| InvalidInput::new(format!("time zone {zone:?}: {error}")))?;
        let times = CronTimes::parse(expression, zone)?;
        Ok(Self(When::Cron { times, last: Timestamp::MAX }).with_last_tick())
    }

    /// Creates a schedule with a tick every `interval`, a millisecond to a thousand years, counted from
    /// the beginning of 1970.
    ///
    /// # Errors
    ///
    /// If `interval` is shorter than a millisecond, or longer than a thousand years.
    pub fn every(interval: Duration) -> Result<Self, InvalidInput> {
        Self::every_with_jitter(interval, Duration::ZERO)
    }

    /// Creates a schedule with a tick every `interval`, each delayed by up to `jitter`. So jobs with the
    /// same interval do not all start at once.
    ///
    /// The delay is a hash of the job's name and the tick: the same in every process, and different for
    /// each job.
    ///
    /// # Errors
    ///
    /// As for [`every`](Self::every). Also if `jitter` is not shorter than `interval`, since ticks could
    /// then change their order.
    pub fn every_with_jitter(interval: Duration, jitter: Duration) -> Result<Self, InvalidInput> {
        if !(SHORTEST_INTERVAL..=LONGEST_INTERVAL).contains(&interval) {
            return Err(InvalidInput::new(format!(
                "interval {interval:?} is out of range: a millisecond to a thousand years"
            )));
        }
        if jitter >= interval && !jitter.is_zero() {
            return Err(InvalidInput::new(format!(
                "jitter {jitter:?} is out of range: it must be shorter than the interval, {interval:?}"
            )));
        }
        let signed = |length| SignedDuration::try_from(length).unwrap_or(SignedDuration::MAX);
        let (interval, jitter) = (signed(interval), signed(jitter));
        Ok(Self(When::Every { interval, jitter, salt: 0 }))
    }

    /// Creates a schedule with one tick, at `at`. If `at` had passed before the job was first seen, the job
    /// never runs, and the scheduler warns.
    pub fn once(at: Timestamp) -> Self {
        Self(When::Once(at))
    }

    /// Creates a schedule without ticks: the job runs only on demand, by
    /// [`run_now`](crate::SchedulerHandle::run_now).
    pub fn on_demand() -> Self {
        Self(When::OnDemand)
    }

    /// Returns the first tick after `after`; `None` if the schedule has no further tick.
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        match &self.0 {
            When::Cron { last, .. } if after >= *last => None,
            When::Cron { times, .. } => times.next(after),
            When::Every { interval, jitter, salt } => {
                // If jitter has delayed the tick with this number beyond `after`, this tick is the next one.
                let number = after.as_nanosecond().div_euclid(interval.as_nanos());
                [number, number.checked_add(1)?].into_iter().find_map(|number| {
                    let delayed = number * interval.as_nanos() + delay(*jitter, *salt, number);
                    Timestamp::from_nanosecond(delayed).ok().filter(|tick| *tick > after)
                })
            }
            When::Once(at) => Some(*at).filter(|at| *at > after),
            When::OnDemand => None,
        }
    }

    /// Returns the tick that is due at `now`, if `last` was the last tick that ran: the latest tick after
    /// `last` and up to `now`. `None` if no such tick exists, or if it is too late to start the tick.
    pub fn due(&self, last: Timestamp, now: Timestamp, misfire: Misfire) -> Option<Timestamp> {
        let earliest = match misfire {
            Misfire::StartWithin(length) => {
                let length = SignedDuration::try_from(length).unwrap_or(SignedDuration::MAX);
                last.max(now.saturating_sub(length).unwrap_or(Timestamp::MIN))
            }
            Misfire::CatchUpOnce => last,
        };
        self.latest(earliest, now)
    }

    /// Returns the last tick after `after` and up to `now`. Bisects the time between: after a year without a
    /// scheduler, a job with a tick each second has missed thirty million ticks.
    fn latest(&self, after: Timestamp, now: Timestamp) -> Option<Timestamp> {
        let (mut tick, mut end) = (self.next(after).filter(|tick| *tick <= now)?, now);
        while let Some(following) = self.next(tick).filter(|following| *following <= end) {
            tick = following;
            let middle = tick.saturating_add(end.duration_since(tick) / 2).unwrap_or(end);
            match self.next(middle).filter(|later| *later <= end) {
                Some(later) => tick = later,
                None => end = middle,
            }
        }
        Some(tick)
    }

    /// Stores the schedule's last tick, if it has one. Without it, each call of `next` after that tick
    /// would search all years to come. A scheduler calls `next` each minute.
    fn with_last_tick(mut self) -> Self {
        if self.next(YEAR_4000).is_none()
            && let Some(end) = self.latest(Timestamp::UNIX_EPOCH, YEAR_4000)
            && let When::Cron { last, .. } = &mut self.0
        {
            *last = end;
        }
        self
    }

    /// Returns the text that identifies the schedule in the job's record. It must stay the same in all
    /// versions of this crate.
    pub(crate) fn stored_text(&self) -> String {
        match &self.0 {
            When::Cron { times, .. } => format!("{} in {}", times.expression(), times.zone()),
            When::Every { interval, jitter, .. } => {
                format!("every {} ns, jitter {} ns", interval.as_nanos(), jitter.as_nanos())
            }
            When::Once(at) => format!("once at {at}"),
            When::OnDemand => "on demand".to_owned(),
        }
    }

    /// Reads a [stored text](Self::stored_text). `None` if it is not one, or if the zone is unknown.
    pub(crate) fn from_stored_text(text: &str) -> Option<Self> {
        if text == "on demand" {
            return Some(Self::on_demand());
        }
        if let Some(at) = text.strip_prefix("once at ") {
            return at.parse().ok().map(Self::once);
        }
        if let Some(lengths) = text.strip_prefix("every ") {
            let (interval, jitter) = lengths.strip_suffix(" ns")?.split_once(" ns, jitter ")?;
            let length = |nanos: &str| {
                let nanos: u128 = nanos.parse().ok()?;
                let seconds = u64::try_from(nanos / 1_000_000_000).ok()?;
                Some(Duration::new(seconds, u32::try_from(nanos % 1_000_000_000).ok()?))
            };
            return Self::every_with_jitter(length(interval)?, length(jitter)?).ok();
        }
        let (expression, zone) = text.rsplit_once(" in ")?;
        Self::cron(expression, zone).ok()
    }

    /// Whether the schedule has no ticks.
    pub(crate) fn is_on_demand(&self) -> bool {
        self.0 == When::OnDemand
    }

    /// Returns the schedule with the jitter of the job `name`.
    pub(crate) fn for_job(mut self, name: &LeaseKey) -> Self {
        if let When::Every { salt, .. } = &mut self.0 {
            let mut hasher = SipHasher13::new();
            hasher.write(name.as_str().as_bytes());
            *salt = hasher.finish();
        }
        self
    }
}

impl Default for Misfire {
    /// A minute: long enough for a restart, or for the end of the last run, and too short for a nightly
    /// job to run by day.
    fn default() -> Self {
        Self::StartWithin(Duration::from_secs(60))
    }
}

impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            When::Cron { times, .. } => write!(f, "{} in {}", times.expression(), times.zone()),
            When::Every { interval, jitter, .. } => write!(f, "every {interval:?} + {jitter:?}"),
            When::Once(at) => write!(f, "once at {at}"),
            When::OnDemand => f.write_str("on demand"),
        }
    }
}

/// Returns the delay of the tick with this number, in nanoseconds. The delay is less than `jitter`. It has
/// whole milliseconds, which are easier to read. A `jitter` below a millisecond has no effect.
fn delay(jitter: SignedDuration, salt: u64, number: i128) -> i128 {
    let mut hasher = SipHasher13::new_with_keys(salt, 0);
    hasher.write(&number.to_le_bytes());
    let millis = jitter.as_millis();
    if millis == 0 {
        return 0;
    }
    i128::from(hasher.finish()).rem_euclid(millis) * 1_000_000
}

/// `croner` finds ticks up to the year 5000. Even rare days, such as a Monday on 29 February, are less
/// than a thousand years apart.
const YEAR_4000: Timestamp = Timestamp::constant(64_060_588_800, 0);

const SHORTEST_INTERVAL: Duration = Duration::from_millis(1);

const LONGEST_INTERVAL: Duration = Duration::from_secs(1000 * 366 * 86_400);

#[cfg(test)]
mod oracle;
#[cfg(test)]
mod tests;
