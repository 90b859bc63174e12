//! One step of the protocol, or of what goes wrong around it.

use std::fmt;

use crate::state::State;
use crate::violation::Violation;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Claim(usize, Deed),
    Arrives(Message, usize, usize),
    RunsOut(usize),
    Restarts(usize),
}

/// What a claim does by itself.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Deed {
    Asks,
    AsksAgain,
    Counts(u8),
    IsGranted,
    Withdraws,
    Beats,
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
    PutBack,
    Withdrawal,
    EarlierWithdrawal,
    Release,
}

/// A step, and what it led to.
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
            Self::Claim(place, deed) => write!(f, "{} {deed}", name(place)),
            Self::Arrives(message, place, node) => {
                write!(f, "{}'s {message} reaches node {}", name(place), node + 1)
            }
            Self::RunsOut(node) => write!(f, "node {} lets its lease run out", node + 1),
            Self::Restarts(node) => write!(f, "node {} restarts, and is empty", node + 1),
        }
    }
}

impl fmt::Display for Deed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asks => f.write_str("asks all nodes"),
            Self::AsksAgain => f.write_str("asks all nodes again"),
            Self::Counts(token) => write!(f, "counts its votes, and writes {token} back"),
            Self::IsGranted => f.write_str("is granted"),
            Self::Withdraws => f.write_str("withdraws"),
            Self::Beats => f.write_str("sends heartbeats"),
            Self::Releases => f.write_str("is released"),
            Self::Ends => f.write_str("comes to its deadline"),
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
            Self::PutBack => "put-back",
            Self::Withdrawal => "withdrawal",
            Self::EarlierWithdrawal => "earlier withdrawal",
            Self::Release => "release",
        })
    }
}
