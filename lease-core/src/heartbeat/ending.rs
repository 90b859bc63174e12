//! The state of a lease: held, or how it ended. One word encodes the state.

use crate::clock::Moment;
use crate::lost::LossCause;

/// Whether a lease is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LeaseState {
    /// Held, and the last heartbeat succeeded.
    Held,
    /// Still held, but the last heartbeat failed, or took longer than the
    /// [request timeout](crate::LeaseOptions::request_timeout). The lease is lost only if no heartbeat
    /// succeeds before the deadline. A heartbeat that hangs is repeated at once. If the repeated heartbeat
    /// succeeds soon, receivers of the state may miss this state.
    AtRisk,
    /// Lost: another lessee may have the key.
    Lost(LossCause),
    /// Released, transferred or handed over by its holder.
    Released,
}

/// How a lease ended: its holder ended it, or it was lost.
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

// The words of a lease that has ended. No deadline has such a value: clocks start at one day, not at zero.
const RELEASED: u64 = 0;
const EXPIRED: u64 = 1;
const REVOKED: u64 = 2;
const SUPERSEDED: u64 = 3;
const ABANDONED: u64 = 4;
const SESSION_ENDED: u64 = 5;

/// The word of a lease that is held until `deadline`.
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

/// How a lease with this word has ended; `None` while it is held.
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
