//! Ranges of missed ticks.

use std::fmt;

use jiff::Timestamp;

use crate::schedule::Schedule;

/// Describes a range of ticks that no machine started in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MissedTicks {
    /// The first missed tick.
    pub first: Timestamp,
    /// The last missed tick.
    pub last: Timestamp,
    /// The number of ticks, counted up to 1,000.
    pub count: usize,
}

impl Schedule {
    /// Returns the ticks after `after` and up to `until`; `None` if there are none.
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
            1 => write!(f, "no machine started {}", self.last),
            MOST_COUNTED => {
                write!(
                    f,
                    "no machine started {MOST_COUNTED} ticks or more, {} to {}",
                    self.first, self.last
                )
            }
            count => {
                write!(f, "no machine started {count} ticks, {} to {}", self.first, self.last)
            }
        }
    }
}

/// After a year, a job with a tick each second has missed thirty million ticks: counting them takes too long.
const MOST_COUNTED: usize = 1000;
