//! The instants at which a cron expression is due in a time zone.

use croner::parser::CronParser;
use croner::{Cron, CronDateTime as _, CronPattern};
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Timestamp};
use lease_core::InvalidInput;

/// A cron expression in a time zone.
///
/// `croner` parses the expression and searches the calendar, in civil time. This module finds the
/// instants of each civil time. `croner` would treat lists and ranges as wildcards, and would drop or
/// repeat them when the clocks change.
#[derive(Clone, PartialEq)]
pub(super) struct CronTimes {
    cron: Box<Cron>,
    zone: TimeZone,
    clock_change: ClockChange,
}

/// How an expression behaves when the zone's clocks change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClockChange {
    /// Each time of the expression has one tick a day.
    FixedTimes,
    /// There is a tick whenever the wall clock shows a time of the expression. If the clock shows this time
    /// twice, there are two ticks.
    WallClock,
}

/// How often a wall clock shows a civil time.
enum Shown {
    Once(Timestamp),
    Twice { first: Timestamp, second: Timestamp },
    Never { gap_end: Timestamp, gap: SignedDuration },
}

impl CronTimes {
    /// Parses `expression`.
    ///
    /// # Errors
    ///
    /// If `expression` cannot be parsed, or names no day that exists.
    pub(super) fn parse(expression: &str, zone: TimeZone) -> Result<Self, InvalidInput> {
        let parse = |parser: CronParser| {
            parser.parse(expression).map_err(|error| {
                InvalidInput::new(format!("cron expression {expression:?} cannot be read: {error}"))
            })
        };
        let mut cron = parse(CronParser::new())?;
        // In cron, a day must fit both day fields if either contains an asterisk, as in `*/2`. In `croner`,
        // this holds only if one of the fields is just an asterisk.
        if cron.pattern.days.from_wildcard || cron.pattern.days_of_week.from_wildcard {
            cron = parse(CronParser::builder().dom_and_dow(true).build())?;
        }
        if !has_a_day(&cron.pattern) {
            return Err(InvalidInput::new(format!(
                "cron expression {expression:?} has no time since 1970: no such day"
            )));
        }
        let pattern = &cron.pattern;
        let times = [&pattern.seconds, &pattern.minutes, &pattern.hours];
        let clock_change = if times.iter().any(|field| field.from_wildcard) {
            ClockChange::WallClock
        } else {
            ClockChange::FixedTimes
        };
        Ok(Self { cron: Box::new(cron), zone, clock_change })
    }

    /// Returns the first tick after `after`.
    pub(super) fn next(&self, after: Timestamp) -> Option<Timestamp> {
        match self.clock_change {
            ClockChange::FixedTimes => self.next_fixed(after),
            ClockChange::WallClock => self.next_shown(after),
        }
    }

    pub(super) fn expression(&self) -> &str {
        self.cron.as_str()
    }

    pub(super) fn zone(&self) -> &str {
        self.zone.iana_name().unwrap_or("a zone")
    }

    /// Returns the next tick of fixed times. Each civil time has one instant, and a later civil time never
    /// has an earlier instant. So the first civil time whose instant is after `after` has the next tick.
    fn next_fixed(&self, after: Timestamp) -> Option<Timestamp> {
        let mut civil = self.zone.to_datetime(after);
        loop {
            civil = self.next_civil(civil, false)?;
            let tick = match self.shown(civil)? {
                Shown::Once(tick) | Shown::Twice { first: tick, .. } => tick,
                Shown::Never { gap_end, gap } if gap <= LONGEST_CLOCK_CHANGE => gap_end,
                Shown::Never { gap_end, .. } => {
                    civil = self.just_before(gap_end);
                    continue;
                }
            };
            if tick > after {
                return Some(tick);
            }
        }
    }

    fn next_shown(&self, after: Timestamp) -> Option<Timestamp> {
        let start = after.checked_add(SignedDuration::from_nanos(1)).ok()?;
        let tick = self.first_shown(start);
        let Some(second_pass) = self.second_pass(start) else { return tick };
        if tick.is_some_and(|tick| tick < second_pass) {
            return tick;
        }
        // The search runs forward in civil time, so it does not find the repeated times after the clock was
        // turned back.
        [tick, self.first_shown(second_pass)].into_iter().flatten().min()
    }

    /// Searches forward in civil time, and returns the first instant that is not before `start`.
    fn first_shown(&self, start: Timestamp) -> Option<Timestamp> {
        let mut civil = self.zone.to_datetime(start);
        let mut inclusive = civil.subsec_nanosecond() == 0;
        loop {
            civil = self.next_civil(civil, inclusive)?;
            inclusive = false;
            match self.shown(civil)? {
                Shown::Once(tick) => return Some(tick),
                Shown::Twice { first, .. } if first >= start => return Some(first),
                Shown::Twice { second, .. } if second >= start => return Some(second),
                Shown::Twice { .. } => (),
                Shown::Never { gap_end, .. } => civil = self.just_before(gap_end),
            }
        }
    }

    /// If the clock will show the civil time of `instant` again, returns when the clock is turned back.
    fn second_pass(&self, instant: Timestamp) -> Option<Timestamp> {
        match self.shown(self.zone.to_datetime(instant))? {
            Shown::Twice { first, .. } if first == instant => {
                Some(self.zone.following(instant).next()?.timestamp())
            }
            _ => None,
        }
    }

    fn next_civil(&self, civil: DateTime, inclusive: bool) -> Option<DateTime> {
        #[cfg(test)]
        SEARCHES.with(|searches| searches.set(searches.get() + 1));
        self.cron.find_next_occurrence(&civil, inclusive).ok()
    }

    fn shown(&self, civil: DateTime) -> Option<Shown> {
        Some(match self.zone.to_ambiguous_timestamp(civil).offset() {
            AmbiguousOffset::Unambiguous { offset } => {
                Shown::Once(offset.to_timestamp(civil).ok()?)
            }
            AmbiguousOffset::Fold { before, after } => Shown::Twice {
                first: before.to_timestamp(civil).ok()?,
                second: after.to_timestamp(civil).ok()?,
            },
            AmbiguousOffset::Gap { before, after } => {
                // With the offset that applies after the gap, `civil` is an instant before the gap.
                let earlier = after.to_timestamp(civil).ok()?;
                let gap_end = self.zone.following(earlier).next()?.timestamp();
                let gap = SignedDuration::from_secs((after.seconds() - before.seconds()).into());
                Shown::Never { gap_end, gap }
            }
        })
    }

    /// Returns the civil second before `gap_end`: a search from there finds the time at `gap_end`.
    fn just_before(&self, gap_end: Timestamp) -> DateTime {
        self.zone.to_datetime(gap_end).saturating_sub(SignedDuration::from_secs(1))
    }
}

#[cfg(test)]
thread_local! {
    /// The number of searches that this thread has made.
    pub(super) static SEARCHES: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Whether the expression names a day since 1970.
///
/// Checked before any search: a search for 30 February takes seconds to end.
fn has_a_day(pattern: &CronPattern) -> bool {
    let months = pattern.months.values();
    let mut years = pattern.years.values().into_iter().filter(|year| *year >= 1970);
    years.any(|year| {
        months
            .iter()
            .any(|month| (1..=31).any(|day| is_day(pattern, year, *month, day).unwrap_or(false)))
    })
}

/// Whether the expression names the date; `None` if no such date exists.
fn is_day(pattern: &CronPattern, year: u16, month: u16, day: i8) -> Option<bool> {
    let date = Date::new(year.try_into().ok()?, month.try_into().ok()?, day).ok()?;
    let weekday = date.to_datetime(Time::midnight()).civil_weekday();
    pattern.day_match(year.into(), month.into(), day.try_into().ok()?, weekday).ok()
}

/// After a longer jump, Vixie's cron assumes that an operator set the clock. It does not run the times that
/// the jump left out. For daylight saving, no zone skips more. Samoa skipped a day to cross the date line.
const LONGEST_CLOCK_CHANGE: SignedDuration = SignedDuration::from_hours(3);
