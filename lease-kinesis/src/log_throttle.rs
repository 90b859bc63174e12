//! Limits the log messages of an event that repeats.

use std::collections::BTreeMap;

/// Counts the occurrences of one event, and decides how each is logged.
///
/// The first 10 occurrences are warnings, and then the 20th, the 40th, the 80th and so on. All other
/// occurrences have the level `debug`.
#[derive(Debug, Default)]
pub struct LogThrottle(u64);

/// A text identifies each event.
#[derive(Debug, Default)]
pub(crate) struct LogThrottles(BTreeMap<String, LogThrottle>);

/// How to log one occurrence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a caller logs each in its own words")]
pub enum LogLevel {
    /// As a warning.
    Warn,
    /// As a warning, which also says that further occurrences are logged rarely.
    WarnThenRarely,
    /// At the level `debug`.
    Debug,
}

impl LogThrottle {
    /// Counts one more occurrence, and returns how to log it.
    pub fn once_more(&mut self) -> LogLevel {
        self.0 += 1;
        let is_twice_as_many =
            self.0.is_multiple_of(ALWAYS_LOGGED) && (self.0 / ALWAYS_LOGGED).is_power_of_two();
        match self.0 {
            ..ALWAYS_LOGGED => LogLevel::Warn,
            ALWAYS_LOGGED => LogLevel::WarnThenRarely,
            _ if is_twice_as_many => LogLevel::Warn,
            _ => LogLevel::Debug,
        }
    }

    /// Returns the number of occurrences, if some of them were not logged as warnings.
    pub fn total_if_throttled(&self) -> Option<u64> {
        (self.0 > ALWAYS_LOGGED).then_some(self.0)
    }
}

impl LogThrottles {
    pub(crate) fn once_more(&mut self, what: &str) -> LogLevel {
        let is_new = !self.0.contains_key(what);
        let what = if is_new && self.0.len() >= MAX_EVENTS { "" } else { what };
        self.0.entry(what.to_owned()).or_default().once_more()
    }
}

const ALWAYS_LOGGED: u64 = 10;

const MAX_EVENTS: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_event_is_logged_ten_times_then_rarely() {
        let mut throttles = LogThrottles::default();
        let mut is_logged = |what: &str| throttles.once_more(what) != LogLevel::Debug;

        let logged: Vec<_> = (1..=100).filter(|_| is_logged("one")).collect();
        assert_eq!(logged, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 40, 80]);
        assert_eq!((0..50).filter(|_| is_logged("another")).count(), 12);
        assert_eq!((0..5_000).filter(|number| is_logged(&number.to_string())).count(), 98 + 18);
    }
}
