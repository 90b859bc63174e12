//! The part of a row that changes while its owner is running.
//!
//! KCL writes no time to a row. A lease has expired if its owner has not changed the row for a failover
//! time.

use lease_core::{FencingToken, Lessee};

/// An owner, and the last sign that the owner is running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Liveness {
    pub(crate) owner: Option<Lessee>,
    pub(crate) sign: LivenessSign,
}

/// The values that an owner changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LivenessSign {
    /// A KCL worker increments `leaseCounter`, by renewals and by checkpoints.
    KclCounter(u64),
    /// Only heartbeats extend a grant of this crate. An update does not.
    Heartbeat { nonce: String, token: FencingToken, beat: u64, reserved: bool },
}
