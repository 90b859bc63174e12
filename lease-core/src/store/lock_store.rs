//! The trait of a lock store: conditional writes, reads, and a watch.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, FuturesUnordered};
use futures_util::{Stream, StreamExt};

use crate::error::{StoreError, StoreErrorKind};
use crate::key::LeaseKey;
use crate::store::grant::{Beat, Claim, Grant, GrantId, Heartbeat, HeldKey, Holder, Obtained};
use crate::store::in_turn::InTurn;
use crate::store::session::Sessions;

/// Stores leases. Implement this trait for a new store. To *use* leases, make a [`Locker`](crate::Locker).
///
/// Each method is one conditional write, or one read. The locker implements retries, waiting,
/// deadlines and heartbeats. A refusal is no error. An error means that the outcome is unknown, and
/// its kind decides whether the locker retries.
///
/// # To ensure correctness
///
/// - **Time**: a grant, a heartbeat or an adoption keeps the key from other lessees for the grant's `ttl`,
///   less the [`grain`](Self::grain). The ttl counts from the moment when the store begins to apply the
///   request. Measure the time with the store's own clock. Never compare the clocks of two machines.
/// - **Tokens**: each grant of a key has a larger token than all earlier grants, also after a
///   release, an expiry, a restart, and a clean-up of the record. A missing counter starts from the
///   store's time in microseconds since 1970.
/// - **Nonces**: store the nonces of the current grant and of the last released grant.
/// - **Atomicity**: the check and the write are one atomic step.
/// - **Requests may be applied twice, late, and after the caller has dropped them.** Do not rely on
///   the caller to repeat a request.
/// - **An `obtain`, `adopt` or `holder` may pause**, because its caller may keep the future without
///   polling it. Meanwhile the future must hold nothing that heartbeats and releases need: no lock,
///   and no connection of a small pool.
///
/// The feature `conformance` has a test kit with one test per requirement.
#[async_trait]
pub trait LockStore: fmt::Debug + Send + Sync + 'static {
    /// Grants `claim` if its key is free.
    ///
    /// - Free: grant the claim, under a token that is larger than all earlier tokens of the key.
    /// - Held under *this claim's nonce*: an earlier request was applied, and its reply was lost. Return
    ///   the grant again, with the [number](Grant::request) of the granted request, or `None` if the store
    ///   does not know the number. The token may be larger than that of the lost reply, but not smaller. Do
    ///   not extend the lease, unless the grant names the present request.
    /// - Held otherwise, or reserved for others: [`Obtained::Held`]. The same claim may be made
    ///   again later, and then be granted.
    /// - Free, but the last grant or the last released grant has the claim's nonce: the claim is a late
    ///   duplicate. A store that remembers the nonce returns [`Obtained::Held`] with the lessee of the claim
    ///   and no time left, also if another lessee has held the key before or since. A store that forgets
    ///   released nonces may grant the key, which is then held without a lease for one ttl. Such a store
    ///   returns the numbers of granted requests.
    ///
    /// A refusal with the lessee of the claim, and with no time left, shows that the claim's own grant has ended. A
    /// locker that had no answer then claims the key under a new nonce. It does so after 4 ttls if the refusals do
    /// not show this.
    ///
    /// A grant sets the claim's [attributes](Claim::attributes) on the record, in the same atomic
    /// step. The record then outlasts the lease. All other attributes stay, and the answer contains
    /// all attributes. No other answer changes an attribute, because a granted claim may be
    /// repeated after an update. A store without records refuses a claim with attributes as
    /// [`Misconfigured`](crate::StoreErrorKind::Misconfigured), before it grants anything.
    ///
    /// # Errors
    ///
    /// If the outcome is unknown.
    async fn obtain(&self, claim: &Claim) -> Result<Obtained, StoreError>;

    /// Extends `grant` for another ttl, if it is still the current grant.
    ///
    /// A grant that expired, was released or was replaced is [`Lost`](Heartbeat::Lost). The cause is
    /// [`Superseded`](crate::LossCause::Superseded) if the record's token is larger. A heartbeat whose
    /// `beat` is not larger than the last applied number is [`Overtaken`](Heartbeat::Overtaken), and
    /// changes nothing. A smaller ttl shortens the lease, as in a hand-over.
    ///
    /// # Errors
    ///
    /// If the outcome is unknown.
    async fn heartbeat(&self, grant: &Grant, beat: Beat) -> Result<Heartbeat, StoreError>;

    /// Frees the key of `grant`, if `grant` still holds the key, and wakes the key's watches.
    ///
    /// With `reserved`, no lessee may obtain the key for this time. The store keeps the nonce. If
    /// `grant` does not hold the key, the store changes nothing and returns `Ok`. A store may
    /// release a grant that has expired, if the key was not granted since.
    ///
    /// # Errors
    ///
    /// If the outcome is unknown.
    async fn release(&self, grant: &Grant, reserved: Option<Duration>) -> Result<(), StoreError>;

    /// Replaces `grant`, which was handed over, by a grant for `claim`.
    ///
    /// The new grant has the claim's nonce and a new token, so a grant is adopted at most once. If
    /// the record has the claim's nonce already, an earlier reply was lost: return the same grant
    /// again. An expired, released or evicted grant is not adopted. The new grant lasts for the
    /// full ttl of the claim, and sets its attributes as [`obtain`](Self::obtain) does.
    /// [`Obtained::Held`] names the holder, or `grant` itself if the key has no holder.
    ///
    /// # Errors
    ///
    /// If the outcome is unknown.
    async fn adopt(&self, grant: &Grant, claim: &Claim) -> Result<Obtained, StoreError>;

    /// Returns the holder of `key`; `None` if the key has no holder.
    ///
    /// # Errors
    ///
    /// If the outcome is unknown.
    async fn holder(&self, key: &LeaseKey) -> Result<Option<Holder>, StoreError>;

    /// Sends many heartbeats. Yields the answers as they arrive, each with its index in `beats`. A
    /// slow or failed heartbeat does not delay the other answers.
    ///
    /// The heartbeater passes at most a few hundred heartbeats. The default sends all at once, each as one
    /// [`heartbeat`](Self::heartbeat). Stores that can batch override this method. A missing index counts
    /// as unanswered.
    fn heartbeat_all<'a>(
        &'a self,
        beats: &'a [(Grant, Beat)],
    ) -> BoxStream<'a, (usize, Result<Heartbeat, StoreError>)> {
        beats
            .iter()
            .enumerate()
            .map(
                |(place, (grant, beat))| async move { (place, self.heartbeat(grant, *beat).await) },
            )
            .collect::<FuturesUnordered<_>>()
            .boxed()
    }

    /// Evicts a holder: refuses further heartbeats of the grant that `grant` names, so that the
    /// lease expires. Returns whether `grant` names the current grant.
    ///
    /// For operators: [`holder`](Self::holder) and [`scan`](Self::scan) return these names. The holder's
    /// next heartbeat reports the loss as [`Revoked`](crate::LossCause::Revoked). The store does not free
    /// the key before the ttl has passed, because the holder may still be working. Until then, other
    /// requests of the holder succeed. The default is for stores that cannot evict.
    ///
    /// # Errors
    ///
    /// If the outcome is unknown. [`Unsupported`](crate::StoreErrorKind::Unsupported) if the store cannot
    /// evict.
    async fn evict(&self, key: &LeaseKey, grant: &GrantId) -> Result<bool, StoreError> {
        let _ = (key, grant);
        Err(unsupported("this store cannot evict a holder"))
    }

    /// Lists the keys that start with `prefix` and have a [`holder`](Self::holder), in any order, in pages.
    ///
    /// For operators. A key may be listed twice. A key that changes during the scan may be listed or not.
    /// An error is an item of the stream, so a failed scan never looks empty. The default is for stores
    /// that cannot list locks.
    fn scan(&self, prefix: &str) -> BoxStream<'_, Result<HeldKey, StoreError>> {
        let _ = prefix;
        stream::iter([Err(unsupported("this store cannot list its locks"))]).boxed()
    }

    /// Watches `key` until a release frees it.
    ///
    /// The watch is registered when the call returns. A later release of the lease that holds the key wakes
    /// the watch, even if the watch is polled only after the release. A watch may wake without a cause.
    ///
    /// A watch need not wake:
    ///
    /// - on an expiry,
    /// - on the release of a lease that was granted after an expiry, unless a claim through this
    ///   store was refused since (so a store may notify only clients that wait),
    /// - on a release that grants the key to a claim of its [queue](Self::in_turn).
    ///
    /// # Errors
    ///
    /// If no watch could be registered. Waiters then poll.
    async fn watch(&self, key: &LeaseKey) -> Result<Freed, StoreError> {
        let _ = key;
        Ok(Freed::never())
    }

    /// Returns the queues of this store, if it keeps a queue for each key. By default, a store has
    /// no queues, and its waiters race for a freed key.
    fn in_turn(&self) -> Option<&dyn InTurn> {
        None
    }

    /// Returns the sessions of this store, if it can keep leases under a session.
    ///
    /// By default, a store has no sessions. A store with sessions is also a
    /// [`LeaseTable`](crate::store::LeaseTable).
    fn sessions(&self) -> Option<&dyn Sessions> {
        None
    }

    /// How much earlier than `ttl` the store may free a key, because its clock is coarse.
    ///
    /// Leases end earlier by this time. Zero by default. A store that counts whole milliseconds
    /// returns one millisecond.
    fn grain(&self) -> Duration {
        Duration::ZERO
    }
}

/// A change of a watched key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// The key may be free.
    Freed {
        /// The number of watches that receive this change, in all processes. With more watches, a
        /// waiter waits longer before its claim. If the number is too small, claims are refused. If
        /// it is too large, claims are late. If the number is `None`, each waiter claims at once.
        watches: Option<u64>,
    },
    /// A claim has obtained the freed key, so other waiters keep waiting.
    Taken,
}

/// Completes when a watched key may be free. Dropping the watch ends it.
#[must_use = "a watch does nothing unless it is awaited"]
pub struct Freed {
    wake: Wake,
}

enum Wake {
    Never,
    Once(BoxFuture<'static, ()>),
    Changes(BoxStream<'static, Change>),
}

impl Freed {
    /// Makes a watch that wakes once, when `wake` completes. The store must register the watch
    /// *before* this call.
    pub fn when(wake: impl Future<Output = ()> + Send + 'static) -> Self {
        Self { wake: Wake::Once(Box::pin(wake)) }
    }

    /// Makes a watch that reports the changes of its key in order. At the end of the stream, the key may be
    /// free, and the waiter registers another watch. The store must register the watch *before* this call.
    pub fn changes(changes: impl Stream<Item = Change> + Send + 'static) -> Self {
        Self { wake: Wake::Changes(Box::pin(changes)) }
    }

    /// Makes a watch that never wakes, for stores without notifications.
    pub fn never() -> Self {
        Self { wake: Wake::Never }
    }

    /// Whether this watch can wake.
    pub fn can_wake(&self) -> bool {
        !matches!(self.wake, Wake::Never)
    }

    /// Waits for the next change. After the last change, the watch never wakes.
    ///
    /// # Cancel safety
    ///
    /// Safe: the next call returns the change.
    pub async fn next(&mut self) -> Change {
        poll_fn(|context| self.poll_next(context)).await
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Change> {
        match &mut self.wake {
            Wake::Never => return Poll::Pending,
            Wake::Once(wake) => ready!(wake.as_mut().poll(context)),
            Wake::Changes(changes) => {
                if let Some(change) = ready!(changes.as_mut().poll_next(context)) {
                    return Poll::Ready(change);
                }
            }
        }
        self.wake = Wake::Never;
        Poll::Ready(Change::Freed { watches: None })
    }
}

impl Future for Freed {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        while ready!(self.poll_next(context)) == Change::Taken {}
        Poll::Ready(())
    }
}

impl fmt::Debug for Freed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Freed").field("can_wake", &self.can_wake()).finish()
    }
}

// All methods must be forwarded: a default method would hide the method of the inner store.
#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl<S: LockStore + ?Sized> LockStore for Arc<S> {
    async fn obtain(&self, claim: &Claim) -> Result<Obtained, StoreError> {
        (**self).obtain(claim).await
    }

    async fn heartbeat(&self, grant: &Grant, beat: Beat) -> Result<Heartbeat, StoreError> {
        (**self).heartbeat(grant, beat).await
    }

    async fn release(&self, grant: &Grant, reserved: Option<Duration>) -> Result<(), StoreError> {
        (**self).release(grant, reserved).await
    }

    async fn adopt(&self, grant: &Grant, claim: &Claim) -> Result<Obtained, StoreError> {
        (**self).adopt(grant, claim).await
    }

    async fn holder(&self, key: &LeaseKey) -> Result<Option<Holder>, StoreError> {
        (**self).holder(key).await
    }

    fn heartbeat_all<'a>(
        &'a self,
        beats: &'a [(Grant, Beat)],
    ) -> BoxStream<'a, (usize, Result<Heartbeat, StoreError>)> {
        (**self).heartbeat_all(beats)
    }

    async fn evict(&self, key: &LeaseKey, grant: &GrantId) -> Result<bool, StoreError> {
        (**self).evict(key, grant).await
    }

    fn scan(&self, prefix: &str) -> BoxStream<'_, Result<HeldKey, StoreError>> {
        (**self).scan(prefix)
    }

    async fn watch(&self, key: &LeaseKey) -> Result<Freed, StoreError> {
        (**self).watch(key).await
    }

    fn in_turn(&self) -> Option<&dyn InTurn> {
        (**self).in_turn()
    }

    fn sessions(&self) -> Option<&dyn Sessions> {
        (**self).sessions()
    }

    fn grain(&self) -> Duration {
        (**self).grain()
    }
}

fn unsupported(sentence: &'static str) -> StoreError {
    StoreError::new(StoreErrorKind::Unsupported, sentence)
}
