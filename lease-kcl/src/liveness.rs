//! The part of a row that changes while its owner is running.
//!
//! KCL writes no time to a row. So a lease has expired if its owner has not changed the row for a failover
//! time.

use lease_core::{FencingToken, Lessee};

/// The owner of a row, and the values that the owner changes while it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Liveness {
    pub(crate) owner: Option<Lessee>,
    pub(crate) sign: LivenessSign,
}

/// The values in a row that a running owner changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LivenessSign {
    /// For a KCL worker: `leaseCounter`, which each renewal and each checkpoint increments.
    KclCounter(u64),
    /// For a grant of this crate: the number of its last heartbeat. A checkpoint does not extend the grant.
    Heartbeat { nonce: String, token: FencingToken, beat: u64, reserved: bool },
}
