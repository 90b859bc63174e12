//! The state of a lease: held, or how it ended. One word encodes the state.

use crate::clock::Moment;
use crate::lost::LossCause;

/// Whether a lease is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LeaseState {
    /// Held, and the last heartbeat succeeded.
    Held,
    /// Still held, but the last heartbeat failed, or took longer than the [request
    /// timeout](crate::LeaseOptions::request_timeout). The lease is lost if no heartbeat succeeds
    /// before the deadline. Receivers may miss this state if the next heartbeat succeeds soon.
    AtRisk,
    /// Lost: another lessee may have the key.
    Lost(LossCause),
    /// The holder has released, transferred or handed over the lease.
    Released,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    Released,
    Lost(LossCause),
}

impl From<Ending> for LeaseState {
    fn from(ending: Ending) -> Self {
        match ending {
            Ending::Released => Self::Released,
            Ending::Lost(cause) => Self::Lost(cause),
        }
    }
}

// The words of a lease that has ended. Clocks start at one day, so no deadline has such a value.
const RELEASED: u64 = 0;
const EXPIRED: u64 = 1;
const REVOKED: u64 = 2;
const SUPERSEDED: u64 = 3;
const ABANDONED: u64 = 4;
const SESSION_ENDED: u64 = 5;

pub(crate) fn word_of(deadline: Moment) -> u64 {
    deadline.as_nanos().max(SESSION_ENDED + 1)
}

pub(crate) fn word_of_ending(ending: Ending) -> u64 {
    match ending {
        Ending::Released => RELEASED,
        Ending::Lost(LossCause::Expired) => EXPIRED,
        Ending::Lost(LossCause::Revoked) => REVOKED,
        Ending::Lost(LossCause::Superseded) => SUPERSEDED,
        Ending::Lost(LossCause::Abandoned) => ABANDONED,
        Ending::Lost(LossCause::SessionEnded) => SESSION_ENDED,
    }
}

pub(crate) fn ending_of(word: u64) -> Option<Ending> {
    match word {
        RELEASED => Some(Ending::Released),
        EXPIRED => Some(Ending::Lost(LossCause::Expired)),
        REVOKED => Some(Ending::Lost(LossCause::Revoked)),
        SUPERSEDED => Some(Ending::Lost(LossCause::Superseded)),
        ABANDONED => Some(Ending::Lost(LossCause::Abandoned)),
        SESSION_ENDED => Some(Ending::Lost(LossCause::SessionEnded)),
        _ => None,
    }
}
