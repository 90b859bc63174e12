//! What a contender observes of a record.

use lease_core::FencingToken;
use lease_core::store::{Beat, Nonce};

/// The part of a record that each grant, heartbeat and release changes. Updates of attributes do not change it, so
/// they do not extend the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Observed {
    pub(crate) token: Option<FencingToken>,
    pub(crate) nonce: Option<Nonce>,
    /// `None` for a reservation.
    pub(crate) beat: Option<Beat>,
}
