//! The loss of a lease, and its cause.

use std::fmt;

use thiserror::Error;

use crate::key::LeaseKey;
use crate::token::FencingToken;

/// A lease was lost before its holder released it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("lease on {key} with token {token} was lost: {cause}")]
#[non_exhaustive]
pub struct Lost {
    /// The key that is no longer held.
    pub key: LeaseKey,
    /// The token of the lost grant.
    pub token: FencingToken,
    /// How the lease was lost.
    pub cause: LossCause,
}

impl Lost {
    pub(crate) fn new(key: LeaseKey, token: FencingToken, cause: LossCause) -> Self {
        Self { key, token, cause }
    }
}

/// How a lease was lost.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum LossCause {
    /// No heartbeat succeeded in time.
    Expired,
    /// An operator [evicted](crate::store::LockStore::evict) the lease, or another process released the
    /// lease or deleted its record.
    Revoked,
    /// The key was granted to another claim.
    Superseded,
    /// The lease was abandoned, or its locker's runtime has ended.
    Abandoned,
    /// The [session](crate::Session) of the lease has ended.
    SessionEnded,
}

impl LossCause {
    /// All causes, to register them before the first loss.
    pub const ALL: [Self; 5] =
        [Self::Expired, Self::Revoked, Self::Superseded, Self::Abandoned, Self::SessionEnded];

    /// A name of lower-case letters and underscores, for the label of a metric.
    pub fn name(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Revoked => "revoked",
            Self::Superseded => "superseded",
            Self::Abandoned => "abandoned",
            Self::SessionEnded => "session_ended",
        }
    }
}

impl fmt::Display for LossCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "no heartbeat succeeded in time",
            Self::Revoked => "it was ended from outside",
            Self::Superseded => "the key was granted to another claim",
            Self::Abandoned => "it gets no more heartbeats",
            Self::SessionEnded => "its session has ended",
        })
    }
}
