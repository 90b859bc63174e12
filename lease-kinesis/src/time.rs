//! The clock for ticks, reads and pauses. No lease depends on it.

use tokio::time::Instant;

/// Reads tokio's clock, which tests can pause.
#[expect(clippy::disallowed_methods, reason = "for ticks and pauses; no lease depends on it")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
