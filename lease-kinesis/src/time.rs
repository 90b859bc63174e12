//! The time by which a worker looks, reads and waits: no lease depends on it.

use tokio::time::Instant;

/// By tokio's clock, which stands still in a paused test. Lease time is read in lease-core alone.
#[expect(clippy::disallowed_methods, reason = "when to look again; no lease depends on it")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
