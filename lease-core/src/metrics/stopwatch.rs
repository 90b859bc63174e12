//! Times of calls, for metrics and the log.

use std::time::Duration;

use tokio::time::Instant;

use crate::clock::tokio_now;

/// Measures how long a call takes. Reads one clock, where a lease's [`Clock`](crate::store::Clock) reads two, and does
/// not count the time in which the machine is suspended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self(now())
    }

    pub(crate) fn elapsed(self) -> Duration {
        now().saturating_duration_since(self.0)
    }
}

fn now() -> Instant {
    #[cfg(test)]
    crate::clock::readings::count();
    tokio_now()
}
