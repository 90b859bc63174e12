//! The part of a row that changes while its owner is running, and the state of the lease that follows from it. KCL
//! writes no time to a row, so only this part shows whether the lease has expired.

use std::time::Duration;

use lease_core::{FencingToken, Holder, Lessee};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Liveness {
    pub(crate) owner: Option<Lessee>,
    /// The worker that processes the shard during a hand-over of KCL 3.
    pub(crate) processor: Option<Lessee>,
    pub(crate) sign: LivenessSign,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LivenessSign {
    /// `leaseCounter` of a KCL worker, which each renewal and each checkpoint increments.
    KclCounter(u64),
    /// The number of a grant's last heartbeat. A checkpoint does not extend the grant.
    Heartbeat { nonce: String, token: FencingToken, beat: u64, reserved: bool },
}

impl Liveness {
    /// The worker that changes the row.
    pub(crate) fn renewer(&self) -> Option<&Lessee> {
        self.processor.as_ref().or(self.owner.as_ref())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LeaseState {
    Free,
    /// For this time, only the row's owner may obtain the lease.
    Reserved(Duration),
    Held(Holder),
    /// The next claim obtains the lease.
    Expired(Holder),
}
