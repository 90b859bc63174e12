//! The requests to a store and its answers: claims, grants, heartbeats.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::key::{LeaseKey, Lessee};
use crate::lost::LossCause;
use crate::store::attributes::Attributes;
use crate::store::nonce::Nonce;
use crate::token::FencingToken;

/// The number of a heartbeat within its grant: 1, 2, 3 …
///
/// A heartbeat that arrives after one with a larger number changes nothing. So a late or doubled request
/// can neither shorten a lease nor revive it. Numbers need not be consecutive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Beat(u64);

impl Beat {
    /// The number of a fresh grant: the number of every heartbeat is larger.
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

/// Asks a store for a key.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Claim {
    /// The key that is asked for.
    pub key: LeaseKey,
    /// The lessee that asks.
    pub lessee: Lessee,
    /// Identifies the logical attempt: its retries carry the same nonce.
    pub nonce: Nonce,
    /// How long the lease lasts without a heartbeat. [`LeaseOptions`](crate::LeaseOptions)
    /// limits the values that a locker sends.
    pub ttl: Duration,
    /// The attributes that the grant sets on the record of the key; none by default.
    pub attributes: Attributes,
}

impl Claim {
    /// Makes a claim of `key` by `lessee`.
    pub fn new(key: LeaseKey, lessee: Lessee, nonce: Nonce, ttl: Duration) -> Self {
        Self { key, lessee, nonce, ttl, attributes: Attributes::new() }
    }

    /// Returns the same claim with `attributes`, which its grant sets on the record of the key.
    ///
    /// [`LockStore::obtain`](crate::store::LockStore::obtain) describes how a store applies them.
    #[must_use]
    pub fn with_attributes(self, attributes: Attributes) -> Self {
        Self { attributes, ..self }
    }

    /// Returns the grant of this claim under `token`. Stores answer with it.
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
/// A grant proves nothing by itself: the store checks every write under it against its own record.
/// [`Claim::granted`] makes a grant, and a [`HandOver`](crate::HandOver) carries one to another process.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Grant {
    /// The key that is held.
    pub key: LeaseKey,
    /// The lessee that holds it.
    pub lessee: Lessee,
    /// The nonce of the claim that was granted.
    pub nonce: Nonce,
    /// Orders this grant among all grants of the key.
    pub token: FencingToken,
    /// How long the lease lasts after each heartbeat.
    pub ttl: Duration,
}

/// The holder of a key, or the lessee that the key is reserved for.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Holder {
    /// The name of the holder.
    pub lessee: Lessee,
    /// The token of the holder's grant.
    pub token: FencingToken,
    /// How long the store keeps the key for the holder without another heartbeat. `None` if the store
    /// does not know.
    pub expires_in: Option<Duration>,
}

impl Holder {
    /// A holder whose lease expires after `expires_in`, if the store knows that.
    pub fn new(lessee: Lessee, token: FencingToken, expires_in: Option<Duration>) -> Self {
        Self { lessee, token, expires_in }
    }
}

/// A store's answer to a claim.
#[derive(Clone, PartialEq, Debug)]
#[expect(clippy::exhaustive_enums, reason = "a claim is granted or it is not: match on both")]
pub enum Obtained {
    /// The claim is granted. The record now has these attributes, including those of the claim.
    Granted(Grant, Attributes),
    /// Another grant holds the key, or the key is reserved.
    Held(Holder),
}

/// A store's answer to a heartbeat.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::exhaustive_enums, reason = "the heartbeater must treat each answer")]
pub enum Heartbeat {
    /// The lease lasts for another ttl from now.
    Extended,
    /// A later heartbeat of this grant was applied before: neither an extension nor a loss.
    Overtaken,
    /// The grant is no longer valid.
    Lost(LossCause),
}

/// A store's answer to any other write under a grant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a write that was not applied changed nothing"]
#[expect(clippy::exhaustive_enums, reason = "a writer must treat each answer")]
pub enum Written {
    /// The grant was valid, and the write was applied.
    Applied,
    /// The grant was valid, but an attribute was not as the [`Change`](crate::Change) expects. Nothing was
    /// changed. An earlier try of the same change may have written the current value: see
    /// [`LeaseTable::update`](crate::store::LeaseTable::update).
    Unexpected,
    /// The grant is no longer valid. Nothing was changed.
    Lost(LossCause),
}
