//! One step of the protocol.

use std::fmt;

use super::state::{ClaimId, name};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Worker(u8, Action),
    Claims(ClaimId),
    Claim(ClaimId, Action),
    Arrives(ClaimId, &'static str),
    BeatArrives(u8),
    Expires(u8),
    /// A worker writes the end of an expired session.
    Ends(u8),
    SessionReleased(u8),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    ObtainsSession,
    LosesSession,
    SendsBeat,
    AcceptsBeat,
    AcceptsGrant,
    AcceptsRefusal,
    GivesUp,
    Releases,
    AcceptsRelease,
    SendsCheckpoint,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Worker(worker, action) => write!(f, "{} {}", name(worker), action.text()),
            Self::Claims(id) => write!(f, "{} sends {id}", name(id.worker)),
            Self::Claim(id, action) => write!(f, "{} {} {id}", name(id.worker), action.text()),
            Self::Arrives(id, what) => write!(f, "{what} of {id} arrives"),
            Self::BeatArrives(worker) => write!(f, "{}'s heartbeat arrives", name(worker)),
            Self::Expires(worker) => write!(f, "{}'s session expires", name(worker)),
            Self::Ends(worker) => write!(f, "the end of {}'s session is written", name(worker)),
            Self::SessionReleased(worker) => {
                write!(f, "the release of {}'s session arrives", name(worker))
            }
        }
    }
}

impl Action {
    fn text(self) -> &'static str {
        match self {
            Self::ObtainsSession => "obtains its session",
            Self::LosesSession => "stops relying on its session",
            Self::SendsBeat => "sends a heartbeat",
            Self::AcceptsBeat => "accepts the answer to its heartbeat",
            Self::AcceptsGrant => "accepts the grant of",
            Self::AcceptsRefusal => "accepts the refusal of",
            Self::GivesUp => "gives up",
            Self::Releases => "releases",
            Self::AcceptsRelease => "accepts the answer to the release of",
            Self::SendsCheckpoint => "sends a checkpoint under",
        }
    }
}
