//! Computes the pauses between attempts.

use std::time::Duration;

#[derive(Debug, Clone, Copy)]
pub(super) struct Backoff {
    pub(super) first: Duration,
    pub(super) last: Duration,
    pub(super) max_attempts: u32,
}

impl Backoff {
    /// Doubles with each failure in a row. `None` after the last attempt.
    pub(super) fn after(self, failures: u32) -> Option<Duration> {
        let doubled = self.first.saturating_mul(1 << failures.saturating_sub(1).min(20));
        (failures < self.max_attempts).then(|| doubled.min(self.last))
    }
}
