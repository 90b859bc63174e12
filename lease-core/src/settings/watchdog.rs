//! Limits the time between two calls of `Locker::alive`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::Moment;

/// Shared by all lockers that are made from one locker.
#[derive(Debug)]
pub(crate) struct Watchdog {
    limit: Duration,
    last: AtomicU64,
}

impl Watchdog {
    pub(crate) fn new(limit: Duration, now: Moment) -> Self {
        Self { limit, last: AtomicU64::new(now.as_nanos()) }
    }

    pub(crate) fn alive(&self, now: Moment) {
        self.last.fetch_max(now.as_nanos(), Ordering::Relaxed);
    }

    /// The time since the last call; `None` within the limit.
    pub(crate) fn silence(&self, now: Moment) -> Option<Duration> {
        let silence = now.since(Moment::from_nanos(self.last.load(Ordering::Relaxed)));
        (silence > self.limit).then_some(silence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_counts_from_the_last_call() {
        const SECOND: Duration = Duration::from_secs(1);
        let start = Moment::from_nanos(0);
        let watchdog = Watchdog::new(SECOND * 10, start);

        assert_eq!(watchdog.silence(start + SECOND * 10), None);
        assert_eq!(watchdog.silence(start + SECOND * 11), Some(SECOND * 11));
        watchdog.alive(start + SECOND * 11);
        assert_eq!(watchdog.silence(start + SECOND * 12), None);
    }
}
