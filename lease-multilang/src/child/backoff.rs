//! Computes the pauses between attempts.

use std::time::Duration;

/// The maximum number of attempts, and the pauses between two attempts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Backoff {
    pub(super) first: Duration,
    pub(super) last: Duration,
    pub(super) max_attempts: u32,
}

impl Backoff {
    /// Returns the pause after this number of failures in a row. The pause doubles each time. Returns `None`
    /// after the last attempt.
    pub(super) fn after(self, failures: u32) -> Option<Duration> {
        let doubled = self.first.saturating_mul(1 << failures.saturating_sub(1).min(20));
        (failures < self.max_attempts).then(|| doubled.min(self.last))
    }
}
