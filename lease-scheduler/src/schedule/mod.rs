//! When a job is to run: a pure function of the time.

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

/// When a job is to run: its ticks.
///
/// A schedule has no state and reads no clock. Whoever asks it gets the same ticks, from wherever he
/// begins to look: that is what lets a fleet agree on them without a word.
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
/// that passes. Several fixed times that fall into one gap, or at its end, share one tick: in Berlin,
/// `0,30 2,3 * * *` runs at 3:00 and 3:30 when 2:00 to 3:00 is left out. The times of an hourly list,
/// as `0 0-23 * * *`, are two hours apart once in autumn; `0 * * * *` has no such pause. A step of hours
/// can lose a run: `0 */2 * * *` has none at 2:00 when the clock leaves 2:00 out.
///
/// These are the rules of Vixie's cron. As there, a gap of more than three hours is no daylight
/// saving: its times are left out. That has happened where a zone crossed the date line, as Samoa did
/// in 2011. Intervals know no zone.
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
/// assert_eq!(night.to_string(), "2026-03-29T01:00:00Z"); // summer has begun: 3 is at 1 of UTC
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq)]
pub struct Schedule(When);

#[derive(Clone, PartialEq)]
enum When {
    /// `last` is the last tick of all, where there is one.
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

/// What becomes of a tick that could not be run when it came due, since nobody was there, or the
/// last run still went on.
///
/// A tick is due until its successor is, at the longest: of several that were missed, only the last
/// is ever run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a tick has an end to its time or it has not")]
pub enum Missed {
    /// It may begin this late, at least a second, and is skipped afterwards: by the clock of
    /// whoever looks, so nobody skips what is in his future.
    SkipAfter(Duration),
    /// It is run as soon as somebody can. Ticks before the job was first seen do not count.
    CatchUpOnce,
}

impl Schedule {
    /// At the times of `expression`, in the time zone `zone` of the IANA database, such as
    /// `Europe/Berlin` or `UTC`.
    ///
    /// Five fields: minute, hour, day of the month, month, day of the week; seconds before them and a
    /// year after them are optional. `croner` parses them: names of months and days, `@daily` and its
    /// like, `L`, `W` and `#` are accepted.
    ///
    /// As in Vixie's cron, a day fits if it fits either field for days: `0 0 1 * MON` runs on each
    /// first and each Monday. If one of the two fields contains an asterisk, the day must fit both:
    /// `0 0 */2 * MON` runs on Mondays with an odd date. `+MON` requires both, too.
    ///
    /// An expression whose years are all over is a schedule without further ticks, and no error: a
    /// schedule reads no clock, and a program must start again after its last tick. If none of them
    /// was ever run, the scheduler warns.
    ///
    /// # Errors
    ///
    /// If the expression cannot be parsed or names no day since 1970, or if the zone is unknown.
    pub fn cron(expression: &str, zone: &str) -> Result<Self, InvalidInput> {
        let zone = TimeZone::get(zone)
            .map_err(|error| InvalidInput::new(format!("time zone {zone:?}: {error}")))?;
        let times = CronTimes::parse(expression, zone)?;
        Ok(Self(When::Cron { times, last: Timestamp::MAX }).up_to_its_end())
    }

    /// Every `interval`, at least a millisecond, counted from the beginning of 1970.
    ///
    /// # Errors
    ///
    /// Where `interval` is shorter than a millisecond, or longer than a thousand years.
    pub fn every(interval: Duration) -> Result<Self, InvalidInput> {
        Self::every_with_jitter(interval, Duration::ZERO)
    }

    /// Every `interval`, each tick later by up to `jitter`: so that jobs of one interval do not all
    /// begin at once.
    ///
    /// How much later is a hash of the job's name and the tick: the same for every process, and
    /// another for every job.
    ///
    /// # Errors
    ///
    /// As for [`every`](Self::every); and where `jitter` is not shorter than `interval`, since ticks
    /// would change places.
    pub fn every_with_jitter(interval: Duration, jitter: Duration) -> Result<Self, InvalidInput> {
        if !(SHORTEST_INTERVAL..=LONGEST_INTERVAL).contains(&interval) {
            return Err(InvalidInput::new(format!(
                "interval {interval:?} is out of range: a millisecond to a thousand years"
            )));
        }
        if jitter >= interval && !jitter.is_zero() {
            return Err(InvalidInput::new(format!(
                "jitter {jitter:?} is too long: shorter than the interval, {interval:?}"
            )));
        }
        let signed = |length| SignedDuration::try_from(length).unwrap_or(SignedDuration::MAX);
        let (interval, jitter) = (signed(interval), signed(jitter));
        Ok(Self(When::Every { interval, jitter, salt: 0 }))
    }

    /// Once, at `at`; never, where that was over before the job was first seen, and the scheduler
    /// then warns.
    pub fn once(at: Timestamp) -> Self {
        Self(When::Once(at))
    }

    /// Only when somebody asks for it: [`run_now`](crate::SchedulerHandle::run_now).
    pub fn on_demand() -> Self {
        Self(When::OnDemand)
    }

    /// The first tick after `after`; `None` where there is none any more.
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        match &self.0 {
            When::Cron { last, .. } if after >= *last => None,
            When::Cron { times, .. } => times.next(after),
            When::Every { interval, jitter, salt } => {
                // The tick of this number may have been moved behind `after`, and then is the next.
                let number = after.as_nanosecond().div_euclid(interval.as_nanos());
                [number, number.checked_add(1)?].into_iter().find_map(|number| {
                    let moved = number * interval.as_nanos() + part_of(*jitter, *salt, number);
                    Timestamp::from_nanosecond(moved).ok().filter(|tick| *tick > after)
                })
            }
            When::Once(at) => Some(*at).filter(|at| *at > after),
            When::OnDemand => None,
        }
    }

    /// The tick that is to be run at `now`, if `last` is the last one that was; `None` where there
    /// is nothing to do.
    ///
    /// That is the latest tick after `last` and not after `now`, unless it is too late for it.
    pub fn due(&self, last: Timestamp, now: Timestamp, missed: Missed) -> Option<Timestamp> {
        let earliest = match missed {
            Missed::SkipAfter(length) => {
                let length = SignedDuration::try_from(length).unwrap_or(SignedDuration::MAX);
                last.max(now.saturating_sub(length).unwrap_or(Timestamp::MIN))
            }
            Missed::CatchUpOnce => last,
        };
        self.latest(earliest, now)
    }

    /// The last tick in the time after `after` and up to `now`, found by halving that time: after a
    /// year without anybody there, a job of each second has missed thirty million.
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

    /// The same schedule, that knows its last tick where there is one. To find nothing takes a search
    /// through all years to come, and a scheduler asks each minute.
    fn up_to_its_end(mut self) -> Self {
        if self.next(YEAR_4000).is_none()
            && let Some(end) = self.latest(Timestamp::UNIX_EPOCH, YEAR_4000)
            && let When::Cron { last, .. } = &mut self.0
        {
            *last = end;
        }
        self
    }

    /// The schedule in words that stay the same from one version of this crate to the next.
    pub(crate) fn words(&self) -> String {
        match &self.0 {
            When::Cron { times, .. } => format!("{} in {}", times.expression(), times.zone()),
            When::Every { interval, jitter, .. } => {
                format!("every {} ns, jitter {} ns", interval.as_nanos(), jitter.as_nanos())
            }
            When::Once(at) => format!("once at {at}"),
            When::OnDemand => "on demand".to_owned(),
        }
    }

    /// Whether it has no ticks of its own.
    pub(crate) fn is_on_demand(&self) -> bool {
        self.0 == When::OnDemand
    }

    /// The same schedule for the job `name`: its jitter is its own.
    pub(crate) fn of(mut self, name: &LeaseKey) -> Self {
        if let When::Every { salt, .. } = &mut self.0 {
            let mut hasher = SipHasher13::new();
            hasher.write(name.as_str().as_bytes());
            *salt = hasher.finish();
        }
        self
    }
}

impl Default for Missed {
    /// Skipped after a minute: long enough for a restart, or for the end of the last run; too short
    /// for a nightly job to run by day.
    fn default() -> Self {
        Self::SkipAfter(Duration::from_secs(60))
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

/// A part of `jitter`, in nanoseconds, that follows from the tick's number: in whole milliseconds, as
/// far as it has any, since more would only be noise to read.
fn part_of(jitter: SignedDuration, salt: u64, number: i128) -> i128 {
    let mut hasher = SipHasher13::new_with_keys(salt, 0);
    hasher.write(&number.to_le_bytes());
    let millis = jitter.as_millis();
    if millis == 0 {
        return 0;
    }
    i128::from(hasher.finish()).rem_euclid(millis) * 1_000_000
}

/// `croner` finds ticks up to the year 5000, and rare days, as a Monday that is 29 February, are not
/// a thousand years apart.
const YEAR_4000: Timestamp = Timestamp::constant(64_060_588_800, 0);

const SHORTEST_INTERVAL: Duration = Duration::from_millis(1);

const LONGEST_INTERVAL: Duration = Duration::from_secs(1000 * 366 * 86_400);

#[cfg(test)]
mod oracle;
#[cfg(test)]
mod tests;
