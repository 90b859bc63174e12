//! One step of the protocol, or one fault.

use std::fmt;

use crate::state::name;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// The last field is the number of a request or a heartbeat.
    Client(usize, Action, usize),
    Arrives(usize, Message, usize),
    TimesOut(usize),
    Expires,
    Flush,
    ReplicaLags,
    Promotion,
    Continues,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    Asks,
    Accepts,
    Confirms,
    AcceptsExtension,
    SendsBeat,
    Releases,
    Reserves,
    HandsOver,
    Leaves,
    DeadlinePasses,
    IsKilled,
    IsCut,
    Subscribes,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Message {
    Plain,
    Enqueue,
    Adoption,
    Beat,
    End,
    Eviction,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Client(place, action, number) => {
                write!(f, "{} {} {number}", name(place), action.text())
            }
            Self::Arrives(place, message, number) => {
                write!(f, "{}'s {} {number} arrives", name(place), message.text())
            }
            Self::TimesOut(place) => write!(f, "the place of {} times out", name(place)),
            Self::Expires => f.write_str("the lock expires"),
            Self::Flush => f.write_str("the server loses all data"),
            Self::ReplicaLags => f.write_str("the replica receives no more writes"),
            Self::Promotion => f.write_str("the replica becomes the server"),
            Self::Continues => f.write_str("no more faults happen"),
        }
    }
}

impl Action {
    fn text(self) -> &'static str {
        match self {
            Self::Asks => "sends request",
            Self::Accepts => "accepts the grant of request",
            Self::Confirms => "sends a heartbeat for the grant of request",
            Self::AcceptsExtension => "accepts the answer to heartbeat",
            Self::SendsBeat => "sends heartbeat",
            Self::Releases => "sends a release for request",
            Self::Reserves => "sends a release with a reservation for request",
            Self::HandsOver => "hands over the grant of request",
            Self::Leaves => "leaves after request",
            Self::DeadlinePasses => "counts one ttl since send",
            Self::IsKilled => "is killed after request",
            Self::IsCut => "loses its subscription after request",
            Self::Subscribes => "subscribes again after request",
        }
    }
}

impl Message {
    fn text(self) -> &'static str {
        match self {
            Self::Plain => "SET of request",
            Self::Enqueue => "enqueue of request",
            Self::Adoption => "adoption of request",
            Self::Beat => "heartbeat",
            Self::End => "end after request",
            Self::Eviction => "eviction of request",
        }
    }
}
