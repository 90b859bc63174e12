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

#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    Asks(u8),
    AsksOthers,
    Repeats(u8),
    IsGranted,
    Withdraws,
    SendsHeartbeats,
    HandsOver,
    Releases,
    Ends,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Message {
    Claim,
    EarlierClaim,
    Heartbeat,
    Restore,
    Withdrawal,
    EarlierWithdrawal,
    Release,
}

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
            Self::Asks(proposal) => write!(f, "proposes {proposal}"),
            Self::AsksOthers => f.write_str("asks the other nodes"),
            Self::Repeats(proposal) => write!(f, "proposes {proposal} again"),
            Self::IsGranted => f.write_str("is granted"),
            Self::Withdraws => f.write_str("withdraws"),
            Self::SendsHeartbeats => f.write_str("sends heartbeats"),
            Self::HandsOver => f.write_str("hands its grant over"),
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
            Self::Heartbeat => "heartbeat",
            Self::Restore => "restore",
            Self::Withdrawal => "withdrawal",
            Self::EarlierWithdrawal => "earlier withdrawal",
            Self::Release => "release",
        })
    }
}
