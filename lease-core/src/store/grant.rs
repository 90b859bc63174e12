//! What is asked of a store, and what it answers: claims, grants, heartbeats.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::attributes::Attributes;
use crate::key::{LeaseKey, Lessee};
use crate::lost::LossCause;
use crate::nonce::Nonce;
use crate::token::FencingToken;

/// The number of a heartbeat within its grant: 1, 2, 3 …
///
/// A heartbeat that arrives after one with a larger number changes nothing, so a late or
/// doubled request can neither shorten a lease nor revive it. Numbers need not be consecutive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Beat(u64);

impl Beat {
    /// What a fresh grant stands at: every heartbeat's number is larger.
    pub const GRANTED: Self = Self(0);

    /// Wraps a number that a store keeps.
    pub fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number.
    pub fn get(self) -> u64 {
        self.0
    }

    /// The number of the heartbeat after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// Asks for a key.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Claim {
    /// What is asked for.
    pub key: LeaseKey,
    /// Who asks.
    pub lessee: Lessee,
    /// One per logical attempt, all its retries included.
    pub nonce: Nonce,
    /// How long the lease lasts without a heartbeat. [`LeaseOptions`](crate::LeaseOptions)
    /// says which values a locker sends.
    pub ttl: Duration,
}

impl Claim {
    /// A claim of `key` by `lessee`.
    pub fn new(key: LeaseKey, lessee: Lessee, nonce: Nonce, ttl: Duration) -> Self {
        Self { key, lessee, nonce, ttl }
    }

    /// The grant of this claim under `token`: what a store answers with.
    pub fn granted(&self, token: FencingToken) -> Grant {
        Grant {
            key: self.key.clone(),
            lessee: self.lessee.clone(),
            nonce: self.nonce,
            token,
            ttl: self.ttl,
        }
    }
}

/// A claim that was granted.
///
/// It proves nothing by itself: every write under it is checked by the store against what the
/// store keeps. Made by [`Claim::granted`], and read back from a
/// [`HandOver`](crate::HandOver).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Grant {
    /// What is held.
    pub key: LeaseKey,
    /// Who holds it.
    pub lessee: Lessee,
    /// The nonce of the claim that was granted.
    pub nonce: Nonce,
    /// Orders this grant among all of its key.
    pub token: FencingToken,
    /// How far each heartbeat reaches.
    pub ttl: Duration,
}

/// Who holds a key now, or for whom it is kept.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Holder {
    /// Who it is.
    pub lessee: Lessee,
    /// The token of its grant.
    pub token: FencingToken,
    /// How long the store will keep the key for it, if no heartbeat comes. `None` where the
    /// store cannot say.
    pub expires_in: Option<Duration>,
}

impl Holder {
    /// A holder whose lease runs out after `expires_in`, as far as the store can say.
    pub fn new(lessee: Lessee, token: FencingToken, expires_in: Option<Duration>) -> Self {
        Self { lessee, token, expires_in }
    }
}

/// What a store says to a claim.
#[derive(Clone, PartialEq, Debug)]
#[expect(clippy::exhaustive_enums, reason = "a claim is granted or it is not: match on both")]
pub enum Obtained {
    /// The key is the claim's; these attributes were on the record.
    Granted(Grant, Attributes),
    /// The key is somebody else's, or kept for somebody else.
    Held(Holder),
}

/// What a store says to a heartbeat.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::exhaustive_enums, reason = "the heartbeater must treat each answer")]
pub enum Heartbeat {
    /// The lease lasts for another ttl from now.
    Extended,
    /// A later heartbeat of this grant came first: neither an extension nor a loss.
    Overtaken,
    /// The grant no longer stands.
    Lost(LossCause),
}

/// What a store says to any other write under a grant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a write that was not applied changed nothing"]
#[expect(clippy::exhaustive_enums, reason = "who writes must treat each answer")]
pub enum Written {
    /// The grant stood, and the write was applied.
    Applied,
    /// The grant stood, but an attribute was not as the [`Change`](crate::Change) expects; nothing
    /// was changed. An earlier try of the same change may be what is there instead: see
    /// [`LeaseTable::update`](crate::LeaseTable::update).
    Unexpected,
    /// The grant no longer stands; nothing was changed.
    Lost(LossCause),
}
