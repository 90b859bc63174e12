//! What has caused a run.

use jiff::Timestamp;

use crate::control::trigger::Request;

#[derive(Debug, Clone)]
pub(crate) enum Cause {
    Tick(Timestamp),
    /// A call on this machine.
    Call,
    /// A trigger of any process.
    Trigger(Request),
}

impl Cause {
    pub(crate) fn tick(&self) -> Option<Timestamp> {
        match self {
            Self::Tick(tick) => Some(*tick),
            Self::Call | Self::Trigger(_) => None,
        }
    }

    pub(crate) fn trigger(&self) -> Option<&Request> {
        match self {
            Self::Trigger(request) => Some(request),
            Self::Tick(_) | Self::Call => None,
        }
    }
}
