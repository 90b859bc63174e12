//! The clock of a simulated stream.

use std::time::Duration;

/// The time since the stream's creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Time(pub(super) Duration);

impl Time {
    pub(super) fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    pub(super) fn millis_since_1970(self) -> u64 {
        FIRST_MILLISECOND + u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX)
    }
}

/// The stream starts on 1 January 2025.
const FIRST_MILLISECOND: u64 = 1_735_689_600_000;
