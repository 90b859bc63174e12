//! The minimum age of a server's current run, by the client's clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lease_core::store::{Clock, Moment};
use parking_lot::Mutex;

/// One run of a server. A restart or a promotion begins another run. A connection never outlasts the run in
/// which it was opened.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) id: String,
    observed: Mutex<Observed>,
    /// Whether the record on the server also shows that the run has lasted for the rejoin delay.
    shared: AtomicBool,
    clock: Arc<dyn Clock>,
}

/// At the time `at`, the run had lasted for at least `length`.
#[derive(Debug, Clone, Copy)]
struct Observed {
    at: Moment,
    length: Duration,
}

impl Run {
    pub(crate) fn new(id: String, length: Duration, clock: Arc<dyn Clock>) -> Self {
        let observed = Mutex::new(Observed { at: clock.now(), length });
        Self { id, observed, shared: AtomicBool::new(false), clock }
    }

    pub(crate) fn lasted(&self) -> Duration {
        let observed = *self.observed.lock();
        observed.length.saturating_add(self.clock.now().since(observed.at))
    }

    /// Records that the run had lasted for at least `length` at `at`. A shorter length is ignored.
    pub(crate) fn note(&self, at: Moment, length: Duration) {
        let mut observed = self.observed.lock();
        if length > observed.length.saturating_add(at.since(observed.at)) {
            *observed = Observed { at, length };
        }
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.shared.load(Ordering::Relaxed)
    }

    pub(crate) fn mark_shared(&self) {
        self.shared.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[derive(Debug, Default)]
    pub(crate) struct ManualClock(pub(crate) AtomicU64);

    impl Clock for ManualClock {
        fn now(&self) -> Moment {
            Moment::from_nanos(self.0.load(Ordering::Relaxed))
        }
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn age_grows_by_the_clock_of_the_client() {
        let clock = Arc::new(ManualClock::default());
        let run = Run::new("a".to_owned(), SECOND, Arc::clone(&clock) as Arc<dyn Clock>);

        clock.0.store(3_000_000_000, Ordering::Relaxed);

        assert_eq!(run.lasted(), 4 * SECOND);
    }

    #[test]
    fn shorter_age_is_ignored() {
        let clock = Arc::new(ManualClock::default());
        let run = Run::new("a".to_owned(), SECOND, Arc::clone(&clock) as Arc<dyn Clock>);
        clock.0.store(3_000_000_000, Ordering::Relaxed);

        run.note(clock.now(), 2 * SECOND);
        assert_eq!(run.lasted(), 4 * SECOND);

        run.note(clock.now(), 60 * SECOND);
        assert_eq!(run.lasted(), 60 * SECOND);
    }
}
