//! One step of the protocol, or one fault.

use std::fmt;

use super::state::name;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// The last field is the number of a request or a heartbeat.
    Claim(usize, Action, usize),
    Arrives(usize, Message, usize),
    Expires(usize),
    Flush,
    Restart,
    ReplicaLags,
    Promotion,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    Asks,
    AsksInBatch,
    Accepts,
    AcceptsAgain,
    Confirms,
    AcceptsExtension,
    SendsBeat,
    Releases,
    Reserves,
    HandsOver,
    GivesUp,
    DeadlinePasses,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Message {
    Claim,
    Set,
    Xadd,
    Batch,
    SetsOfBatch,
    XaddOfBatch,
    Beat,
    Release,
    Eviction,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Claim(place, action, number) => {
                write!(f, "{} {} {number}", name(place), action.text())
            }
            Self::Arrives(place, message, number) => {
                write!(f, "{}'s {} {number} arrives", name(place), message.text())
            }
            Self::Expires(key) => write!(f, "key {key} expires"),
            Self::Flush => f.write_str("the server loses all data"),
            Self::Restart => f.write_str("the server restarts without its data"),
            Self::ReplicaLags => f.write_str("the replica receives no more writes"),
            Self::Promotion => f.write_str("the replica becomes the server"),
        }
    }
}

impl Action {
    fn text(self) -> &'static str {
        match self {
            Self::Asks => "sends request",
            Self::AsksInBatch => "sends batch",
            Self::Accepts => "accepts the answer to request",
            Self::AcceptsAgain => "accepts an earlier grant from request",
            Self::Confirms => "sends a heartbeat for the answer to request",
            Self::AcceptsExtension => "accepts the answer to heartbeat",
            Self::SendsBeat => "sends heartbeat",
            Self::Releases => "sends a release for request",
            Self::Reserves => "sends a release with a reservation for request",
            Self::HandsOver => "hands over the grant of request",
            Self::GivesUp => "gives up after request",
            Self::DeadlinePasses => "counts one ttl since send",
        }
    }
}

impl Message {
    fn text(self) -> &'static str {
        match self {
            Self::Claim => "request",
            Self::Set => "SET of request",
            Self::Xadd => "XADD of request",
            Self::Batch => "batch with request",
            Self::SetsOfBatch => "SETs of the batch with request",
            Self::XaddOfBatch => "XADD of the batch with request",
            Self::Beat => "heartbeat",
            Self::Release => "release of request",
            Self::Eviction => "eviction of request",
        }
    }
}
