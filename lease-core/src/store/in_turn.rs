//! Waiting in turn: a store keeps a queue of claims for each key, and grants a freed key to the first claim.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream, Stream};

use crate::error::StoreError;
use crate::store::attributes::Attributes;
use crate::store::grant::{Claim, Grant};

/// Keeps a queue of claims for each key. Such a store returns itself from
/// [`LockStore::in_turn`](crate::store::LockStore::in_turn).
///
/// A release grants the key to the first claim of the queue, in the same atomic step. So the order
/// of the grants is the order in which the claims arrived.
///
/// # To ensure correctness
///
/// - **The nonce identifies the waiter.** A wait has one nonce, and each of its requests has the
///   next [number](Claim::request). A grant names the largest number that had arrived. The deadline
///   counts from the moment at which the waiter sent this request, so a late answer is safe.
/// - **A place lasts for the [ttl](Claim::ttl) of its claim** from each enqueue and renewal. Then the store
///   skips the place. The store may skip the place earlier if the waiter no longer listens.
/// - **A claim by `obtain` does not overtake the queue.** While claims with unexpired places are
///   queued, a release grants the key to one of them. So does a waiter that was granted the key but
///   leaves. After an expiry, a claim by `obtain` may come first.
/// - **Every enqueue and every renewal checks whether the key is free**, and grants a free key to the first
///   claim whose place has not expired.
/// - **A waiter never uses a nonce again** after it has left the queue. Requests may still arrive
///   late or twice. A late enqueue may be granted the key, for at most one ttl.
#[async_trait]
pub trait InTurn: Send + Sync {
    /// Starts to deliver the notices for the nonce of `claim`. Call `listen` before
    /// [`enqueue`](Self::enqueue).
    ///
    /// If the claim is granted after this call, the waiter receives a notice, or [`Notice::Missed`]
    /// instead. A store without notifications returns [`Notices::never`]. Its waiters renew their places
    /// every poll interval.
    ///
    /// # Errors
    ///
    /// If the store cannot notify now. After an error that is not retryable, the waiter races for the key.
    async fn listen(&self, claim: &Claim) -> Result<Notices, StoreError>;

    /// Adds `claim` to the end of the queue, unless its key is free and the queue is empty.
    ///
    /// If the claim is queued already, the call renews its place. If the claim holds the key, the answer is
    /// the grant again, as after [`obtain`](crate::store::LockStore::obtain).
    ///
    /// # Errors
    ///
    /// If the outcome is unknown.
    async fn enqueue(&self, claim: &Claim) -> Result<Enqueued, StoreError>;

    /// Renews the place of `claim`, like [`enqueue`](Self::enqueue). For a claim without a place,
    /// the answer is [`Enqueued::Gone`].
    ///
    /// # Errors
    ///
    /// If the outcome is unknown.
    async fn renew(&self, claim: &Claim) -> Result<Enqueued, StoreError>;

    /// Removes `claim` from the queue. If the claim was granted the key meanwhile, or by an earlier
    /// [`obtain`](crate::store::LockStore::obtain), frees the key and grants the key to the next claim.
    ///
    /// # Errors
    ///
    /// If the outcome is unknown.
    async fn leave(&self, claim: &Claim) -> Result<(), StoreError>;
}

/// A store's answer to an [enqueue](InTurn::enqueue) or a [renewal](InTurn::renew).
#[derive(Clone, PartialEq, Debug)]
#[expect(clippy::exhaustive_enums, reason = "a waiter must treat each answer")]
pub enum Enqueued {
    /// The claim holds its key. The deadline counts from the request that the grant names.
    Granted(Grant, Attributes),
    /// The claim has a place in the queue.
    Queued(Place),
    /// The claim has no place: it was not renewed in time, or the data were lost. Its nonce is not
    /// used again.
    Gone,
    /// The store keeps no queue for this key, or for this claim.
    NoQueue,
}

/// A place in the queue of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Place {
    /// The number of claims before this claim. Expired places count, too. `None` if the store does not know
    /// the number, for example because the queue is long.
    pub ahead: Option<u64>,
    /// The time until the lease of the holder expires without another heartbeat. `None` if the
    /// store does not know this time.
    pub expires_in: Option<Duration>,
}

impl Place {
    /// A place behind `ahead` other claims.
    pub fn new(ahead: Option<u64>, expires_in: Option<Duration>) -> Self {
        Self { ahead, expires_in }
    }
}

/// A message from a store to a waiter.
#[derive(Clone, PartialEq, Debug)]
#[expect(clippy::exhaustive_enums, reason = "a waiter must treat each notice")]
pub enum Notice {
    /// The claim was granted. The deadline counts from the request that the grant names.
    Granted(Grant, Attributes),
    /// A grant may have been missed, or the queue was removed.
    Missed,
}

/// The notices for one waiter. Dropping the notices ends their delivery.
#[must_use = "notices do nothing unless they are received"]
pub struct Notices {
    stream: Option<BoxStream<'static, Notice>>,
}

impl Notices {
    /// Makes notices from a stream. The end of the stream counts as [`Notice::Missed`].
    pub fn new(stream: impl Stream<Item = Notice> + Send + 'static) -> Self {
        Self { stream: Some(stream.boxed()) }
    }

    /// Makes notices that never arrive, for stores without notifications.
    pub fn never() -> Self {
        Self { stream: None }
    }

    /// Whether a notice can arrive.
    pub fn can_notify(&self) -> bool {
        self.stream.is_some()
    }

    /// Waits for the next notice.
    ///
    /// # Cancel safety
    ///
    /// Safe: no notice is lost.
    pub async fn next(&mut self) -> Notice {
        match &mut self.stream {
            Some(stream) => stream.next().await.unwrap_or(Notice::Missed),
            None => std::future::pending().await,
        }
    }

    /// Calls `look` with each notice before the waiter receives the notice.
    pub fn inspect(self, look: impl FnMut(&Notice) + Send + 'static) -> Self {
        match self.stream {
            Some(notices) => Self::new(StreamExt::inspect(notices, look)),
            None => Self::never(),
        }
    }
}

impl fmt::Debug for Notices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notices").field("can_notify", &self.can_notify()).finish()
    }
}

impl From<tokio::sync::mpsc::UnboundedReceiver<Notice>> for Notices {
    fn from(received: tokio::sync::mpsc::UnboundedReceiver<Notice>) -> Self {
        Self::new(stream::unfold(received, async |mut received| {
            let notice = received.recv().await?;
            Some((notice, received))
        }))
    }
}
