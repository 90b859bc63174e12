//! Ticks that nobody began in time.

use std::fmt;

use jiff::Timestamp;

use super::Schedule;

/// Ticks that nobody began in time, one after another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MissedTicks {
    /// The first of them.
    pub first: Timestamp,
    /// The last of them.
    pub last: Timestamp,
    /// How many they are, counted up to 1,000.
    pub count: usize,
}

impl Schedule {
    /// The ticks after `after` and up to `until`.
    pub(crate) fn ticks_between(&self, after: Timestamp, until: Timestamp) -> Option<MissedTicks> {
        let first = self.next(after).filter(|tick| *tick <= until)?;
        let ticks = std::iter::successors(Some(first), |tick| self.next(*tick));
        let count = ticks.take_while(|tick| *tick <= until).take(MOST_COUNTED).count();
        Some(MissedTicks { first, last: self.latest(after, until)?, count })
    }
}

impl fmt::Display for MissedTicks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.count {
            1 => write!(f, "nobody began {}", self.last),
            MOST_COUNTED => {
                write!(
                    f,
                    "nobody began {MOST_COUNTED} ticks or more, {} to {}",
                    self.first, self.last
                )
            }
            count => write!(f, "nobody began {count} ticks, {} to {}", self.first, self.last),
        }
    }
}

/// A job of each second has missed thirty million after a year.
const MOST_COUNTED: usize = 1000;
