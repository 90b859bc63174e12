//! One step of the protocol, or one fault.

use std::fmt;

use crate::state::State;
use crate::violation::Violation;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Claim(usize, Action),
    Arrives(Message, usize, usize),
    Expires(usize),
    Restarts(usize),
}

/// An action of a claim.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    Asks,
    Repeats,
    Counts(u8),
    IsGranted,
    Withdraws,
    SendsHeartbeats,
    Releases,
    Ends,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Message {
    Claim,
    EarlierClaim,
    WriteBack,
    EarlierWriteBack,
    Heartbeat,
    Restore,
    Withdrawal,
    EarlierWithdrawal,
    Release,
}

/// A step and the state after it.
#[derive(Debug)]
pub(crate) struct Taken<const N: usize> {
    pub(crate) step: Step,
    pub(crate) state: State<N>,
    pub(crate) violation: Option<Violation>,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |place: usize| ["A", "B", "C"][place];
        match *self {
            Self::Claim(place, action) => write!(f, "{} {action}", name(place)),
            Self::Arrives(message, place, node) => {
                write!(f, "{}'s {message} reaches node {}", name(place), node + 1)
            }
            Self::Expires(node) => write!(f, "the lease expires on node {}", node + 1),
            Self::Restarts(node) => write!(f, "node {} restarts empty", node + 1),
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asks => f.write_str("asks all nodes"),
            Self::Repeats => f.write_str("asks all nodes again"),
            Self::Counts(token) => write!(f, "counts its votes and writes {token} back"),
            Self::IsGranted => f.write_str("is granted"),
            Self::Withdraws => f.write_str("withdraws"),
            Self::SendsHeartbeats => f.write_str("sends heartbeats"),
            Self::Releases => f.write_str("is released"),
            Self::Ends => f.write_str("reaches its deadline"),
        }
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Claim => "claim",
            Self::EarlierClaim => "earlier claim",
            Self::WriteBack => "write-back",
            Self::EarlierWriteBack => "earlier write-back",
            Self::Heartbeat => "heartbeat",
            Self::Restore => "restore",
            Self::Withdrawal => "withdrawal",
            Self::EarlierWithdrawal => "earlier withdrawal",
            Self::Release => "release",
        })
    }
}
