//! The requests to a store and its answers: claims, grants, heartbeats.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::key::{LeaseKey, Lessee};
use crate::lost::LossCause;
use crate::store::attributes::Attributes;
use crate::store::nonce::Nonce;
use crate::store::session::Parent;
use crate::token::FencingToken;

/// The number of a heartbeat within its grant: 1, 2, 3 … Numbers need not be consecutive.
///
/// A heartbeat that arrives after a heartbeat with a larger number changes nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Beat(u64);

impl Beat {
    /// The number of a fresh grant. The number of every heartbeat is larger.
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

/// The number of a request among the requests of one claim: 1, 2, 3 …
///
/// All requests of a claim have the same nonce.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RequestNumber(u64);

impl RequestNumber {
    /// The number of a claim's first request.
    pub const FIRST: Self = Self(1);

    /// Wraps a number that a store keeps.
    pub fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number.
    pub fn get(self) -> u64 {
        self.0
    }

    /// The number of the request after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// A request to a store for a key.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Claim {
    /// The key that the lessee claims.
    pub key: LeaseKey,
    /// The lessee that claims the key.
    pub lessee: Lessee,
    /// Identifies the logical attempt, with all its retries.
    pub nonce: Nonce,
    /// The number of this request among the requests with the same nonce.
    pub request: RequestNumber,
    /// How long the lease lasts without a heartbeat. [`LeaseOptions`](crate::LeaseOptions) limits
    /// the values that a locker sends.
    pub ttl: Duration,
    /// The attributes that the grant sets on the record of the key; none by default.
    pub attributes: Attributes,
    /// The session under which the key is claimed; none by default.
    pub parent: Option<Parent>,
}

impl Claim {
    /// Makes a claim of `key` by `lessee`.
    pub fn new(key: LeaseKey, lessee: Lessee, nonce: Nonce, ttl: Duration) -> Self {
        let (request, attributes) = (RequestNumber::FIRST, Attributes::new());
        Self { key, lessee, nonce, request, ttl, attributes, parent: None }
    }

    /// Returns the same claim with the next request number.
    #[must_use]
    pub fn repeated(self) -> Self {
        Self { request: self.request.next(), ..self }
    }

    /// Returns the same claim with `attributes`.
    #[must_use]
    pub fn with_attributes(self, attributes: Attributes) -> Self {
        Self { attributes, ..self }
    }

    /// Returns the same claim under `session`, for [`obtain_under`](crate::store::Sessions::obtain_under)
    /// and [`adopt`](crate::store::LockStore::adopt). The store then ignores the ttl.
    #[must_use]
    pub fn under(self, session: Parent) -> Self {
        Self { parent: Some(session), ..self }
    }

    /// Returns the grant that this request has made, under `token`.
    pub fn granted(&self, token: FencingToken) -> Grant {
        self.granted_to(Some(self.request), token)
    }

    /// Returns the grant of an earlier request of this claim, if the store does not know which
    /// request was granted. The deadline counts from the first request.
    pub fn granted_before(&self, token: FencingToken) -> Grant {
        self.granted_to(None, token)
    }

    /// Returns the grant that the request with number `request` has made.
    pub fn granted_to(&self, request: Option<RequestNumber>, token: FencingToken) -> Grant {
        Grant {
            key: self.key.clone(),
            lessee: self.lessee.clone(),
            nonce: self.nonce,
            request,
            token,
            ttl: self.ttl,
            parent: self.parent.clone(),
        }
    }
}

/// A claim that was granted.
///
/// The store checks every write under a grant against its own record.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Grant {
    /// The key that is held.
    pub key: LeaseKey,
    /// The lessee that holds the key.
    pub lessee: Lessee,
    /// The nonce of the claim that was granted.
    pub nonce: Nonce,
    /// Which request of the claim was granted. `None` if an earlier request was granted, and the
    /// store does not know which.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestNumber>,
    /// The fencing token of the grant.
    pub token: FencingToken,
    /// How long the lease lasts after each heartbeat.
    pub ttl: Duration,
    /// The session under which the key is held. The lease then lasts as long as the session.
    ///
    /// Serialized grants have no session, because a hand-over takes the lease out of its session.
    #[serde(skip)]
    pub parent: Option<Parent>,
}

/// Names one grant for an operator, who passes the name to
/// [`LockStore::evict`](crate::store::LockStore::evict).
///
/// Each store has its own text, which is stable as long as the grant lasts. Every store that can
/// evict also accepts the text of the grant's token, once the store knows the token.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GrantId(String);

impl GrantId {
    /// Wraps the text of a store, or a text that an operator has copied.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The token, for stores that name a grant by its token.
    pub fn token(&self) -> Option<FencingToken> {
        FencingToken::new(self.0.parse().ok()?).ok()
    }
}

impl From<Nonce> for GrantId {
    fn from(nonce: Nonce) -> Self {
        Self(nonce.get().simple().to_string())
    }
}

impl From<FencingToken> for GrantId {
    fn from(token: FencingToken) -> Self {
        Self(token.to_string())
    }
}

impl fmt::Display for GrantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for GrantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The holder of a key, or the lessee that the key is reserved for.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Holder {
    /// The name of the holder.
    pub lessee: Lessee,
    /// Names the holder's grant. `None` if the key is only reserved, or if the store cannot name the grant.
    pub grant: Option<GrantId>,
    /// The token of the holder's grant. `None` if the store does not know the token yet. A store
    /// may learn the token from the first heartbeat.
    pub token: Option<FencingToken>,
    /// How long the store keeps the key for the holder without another heartbeat. `None` if the
    /// store does not report this time with a refusal: try [`holder`](crate::Locker::holder).
    pub expires_in: Option<Duration>,
    /// The session under which the key is held.
    pub parent: Option<Parent>,
}

impl Holder {
    /// A holder whose lease expires after `expires_in`, if the store knows this time.
    pub fn new(lessee: Lessee, expires_in: Option<Duration>) -> Self {
        Self { lessee, grant: None, token: None, expires_in, parent: None }
    }

    /// Returns the same holder with the name of its grant.
    #[must_use]
    pub fn with_grant(self, grant: impl Into<GrantId>) -> Self {
        Self { grant: Some(grant.into()), ..self }
    }

    /// Returns the same holder with the token of its grant.
    #[must_use]
    pub fn with_token(self, token: FencingToken) -> Self {
        Self { token: Some(token), ..self }
    }

    /// Returns the same holder under `session`, if any.
    #[must_use]
    pub fn with_parent(self, session: Option<Parent>) -> Self {
        Self { parent: session, ..self }
    }

    /// Returns the same holder with the token as the name of its grant.
    #[must_use]
    pub fn named_by(self, token: FencingToken) -> Self {
        self.with_grant(token).with_token(token)
    }

    /// Whether the holder holds its key under `grant`.
    pub fn holds(&self, grant: &Grant) -> bool {
        self.token == Some(grant.token) || self.grant == Some(grant.nonce.into())
    }
}

/// A key and its holder: an item of a [scan](crate::store::LockStore::scan).
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct HeldKey {
    /// The key.
    pub key: LeaseKey,
    /// The holder of the key.
    pub holder: Holder,
}

impl HeldKey {
    /// Makes an item of a scan.
    pub fn new(key: LeaseKey, holder: Holder) -> Self {
        Self { key, holder }
    }
}

impl Grant {
    /// The holder of this grant, for a store's answer that the key is held.
    pub fn holder(&self, expires_in: Option<Duration>) -> Holder {
        let holder = Holder::new(self.lessee.clone(), expires_in);
        holder.named_by(self.token)
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
    /// A later heartbeat of this grant was applied first. This heartbeat neither extends nor ends the lease.
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
    /// changed. An earlier request with the same change may have written the current value: see
    /// [`LeaseTable::update`](crate::store::LeaseTable::update).
    Unexpected,
    /// The grant is no longer valid. Nothing was changed.
    Lost(LossCause),
}
