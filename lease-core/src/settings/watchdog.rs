//! The limit on the time in which an application does not say that it is alive.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::Moment;

/// Shared by the lockers that were made from one, so that each may call `alive` for all.
#[derive(Debug)]
pub(crate) struct Watchdog {
    limit: Duration,
    /// The last sign of life, in nanoseconds of lease time.
    last: AtomicU64,
}

impl Watchdog {
    /// Counts from `now`.
    pub(crate) fn new(limit: Duration, now: Moment) -> Self {
        Self { limit, last: AtomicU64::new(now.as_nanos()) }
    }

    pub(crate) fn alive(&self, now: Moment) {
        self.last.fetch_max(now.as_nanos(), Ordering::Relaxed);
    }

    /// How long there has been no sign of life, once that is longer than the limit.
    pub(crate) fn silence(&self, now: Moment) -> Option<Duration> {
        let silence = now.since(Moment::from_nanos(self.last.load(Ordering::Relaxed)));
        (silence > self.limit).then_some(silence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_counts_from_the_last_sign_of_life() {
        const SECOND: Duration = Duration::from_secs(1);
        let start = Moment::from_nanos(0);
        let watchdog = Watchdog::new(SECOND * 10, start);

        assert_eq!(watchdog.silence(start + SECOND * 10), None);
        assert_eq!(watchdog.silence(start + SECOND * 11), Some(SECOND * 11));
        watchdog.alive(start + SECOND * 11);
        assert_eq!(watchdog.silence(start + SECOND * 12), None);
    }
}
