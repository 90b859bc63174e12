//! By what a row tells that somebody is behind it: KCL writes no time, so a lease that stays as it is
//! has nobody.

use lease_core::{FencingToken, Lessee};

/// What changes with every sign of life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sight {
    pub(super) owner: Option<Lessee>,
    pub(super) life: Life,
}

/// What its owner moves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Life {
    /// A worker of KCL moves the counter, by renewals and by checkpoints.
    OfKcl { counter: u64 },
    /// A grant of ours goes by its heartbeats alone: an update is no sign of life.
    OfGrant { nonce: String, token: FencingToken, beat: u64, reserved: bool },
}
