//! Times of calls, for metrics and the log.

use std::time::Duration;

use tokio::time::Instant;

/// Measures how long a call takes. Reads one clock, where a lease's [`Clock`](crate::store::Clock) reads two, and does
/// not count the time in which the machine is suspended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    #[expect(clippy::disallowed_methods, reason = "no lease depends on this time")]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}
