//! The result of the repair of a mark.

use jiff::Timestamp;
use lease_core::Holder;

/// The result of [`JobControl::reset_mark`](crate::JobControl::reset_mark).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum MarkReset {
    /// The mark was removed. The value is the time of the mark. Ticks from now on run again.
    Reset(Timestamp),
    /// The mark was not ahead of this machine's clock, so nothing changed.
    NotAhead,
    /// The job runs, or its key is reserved: stop the job, or try again later.
    Held(Holder),
}
