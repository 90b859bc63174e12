//! One step of the protocol.

use std::fmt;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Worker(usize, Action),
    ExpiringLeaseEnds,
    EarlierModeObtains,
    CountersAreRemoved,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    ObtainsSession,
    Writes,
    Counts,
    CountsWithoutAnswer,
    RestoresCounter,
    Looks,
    Acts,
    ForgetsNotices,
    HandsOver,
    ClaimsWithoutAnswer,
    SettlesClaim,
    Crashes,
    Restarts,
    LosesSession,
    SessionExpires,
    RowIsRemoved,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Worker(worker, action) => {
                let name = ('A'..).nth(worker).unwrap_or('?');
                write!(f, "{name}: {action:?}")
            }
            other => write!(f, "{other:?}"),
        }
    }
}
