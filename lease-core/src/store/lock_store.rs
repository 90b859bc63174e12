//! What a store must do: four conditional writes, a read, and a way to wait.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{BoxStream, FuturesUnordered};

use crate::error::StoreError;
use crate::key::LeaseKey;
use crate::store::grant::{Beat, Claim, Grant, Heartbeat, Holder, Obtained};

/// Keeps leases. Implement this to put them somewhere new; to *use* leases, take a
/// [`Locker`](crate::Locker).
///
/// Each method is one conditional write, or one read. Policy (retries, waiting, deadlines,
/// heartbeats) is the locker's. What a store says is a value; an error says that the outcome is
/// unknown, and whether asking again may help.
///
/// # To ensure correctness
///
/// - **Time**: after a grant, a heartbeat or an adoption, no other lessee gets the key before the
///   grant's `ttl` has passed since the store began to apply the request, less the [`grain`](Self::grain).
///   Judge it by one clock, the store's own, never by comparing the clocks of two machines.
/// - **Tokens**: each grant of a key carries a larger token than every earlier one, also after
///   a release, an expiry, a restart, and a clean-up of the record. Where the counter is absent,
///   start from the store's time in microseconds since 1970.
/// - **Nonces**: remember the nonce of the grant that stands, and of the last one that was
///   released. That is what makes lost, late and doubled requests harmless.
/// - **Atomicity**: the check and the write are one step. Reading first and writing after is
///   not a lock.
/// - **Requests may be applied twice, late, and after the caller has given up.** A dropped
///   future may or may not have been applied. Do not count on being asked again.
/// - **An `obtain`, `adopt` or `holder` may pause**: its caller polls it, and may keep it without polling.
///   Meanwhile it must hold nothing that heartbeats and releases need: no lock, and no connection of a
///   small pool.
///
/// The kit behind the feature `conformance` holds a store to all of this, one sentence each.
#[async_trait]
pub trait LockStore: fmt::Debug + Send + Sync + 'static {
    /// Grants `claim` if its key is free.
    ///
    /// - Free: grant it, under a token larger than every earlier one of the key.
    /// - Held under *this claim's nonce*: the earlier request was applied and its reply lost.
    ///   Answer the same grant again, and do not extend it.
    /// - Held otherwise, or reserved for others: [`Obtained::Held`]. The same claim may be made
    ///   again later, and then be granted.
    /// - The nonce is that of the last released grant: a late duplicate. Answer
    ///   [`Obtained::Held`], with what was released.
    ///
    /// A grant sets the claim's [attributes](Claim::attributes) on the record, in the same atomic step;
    /// the record lasts from then on. All others stay, and all are returned. Every other answer changes
    /// none: a claim that was granted before may be repeated after its holder has updated them. A store
    /// that keeps no records refuses a claim with attributes as
    /// [`Misconfigured`](crate::StoreErrorKind::Misconfigured), before it grants anything.
    ///
    /// # Errors
    ///
    /// Where the outcome is unknown.
    async fn obtain(&self, claim: &Claim) -> Result<Obtained, StoreError>;

    /// Keeps `grant` alive for another ttl, if it still stands.
    ///
    /// Never revives: what has expired, was released or was granted to others is
    /// [`Lost`](Heartbeat::Lost), [`Superseded`](crate::LossCause::Superseded) where the record's
    /// token is larger. A `beat` not larger than the last one applied changes nothing
    /// and is [`Overtaken`](Heartbeat::Overtaken). A ttl smaller than the last one shortens the
    /// lease: that is how a hand-over is bounded.
    ///
    /// # Errors
    ///
    /// Where the outcome is unknown.
    async fn heartbeat(&self, grant: &Grant, beat: Beat) -> Result<Heartbeat, StoreError>;

    /// Frees the key of `grant`, if `grant` still holds it, and wakes its watches.
    ///
    /// With `reserved`, no lessee may obtain the key for that long. Remembers the nonce. If `grant` does
    /// not hold the key, nothing changes, and that is no error. A store may release a grant that has
    /// expired, if the key was not granted since.
    ///
    /// # Errors
    ///
    /// Where the outcome is unknown.
    async fn release(&self, grant: &Grant, reserved: Option<Duration>) -> Result<(), StoreError>;

    /// Makes `claim` the holder of `grant`, which was handed over.
    ///
    /// Swaps the nonce, so that a grant is adopted at most once, and takes a new token. A
    /// record that carries the claim's nonce already is a lost reply: the same grant again. An
    /// expired, released or evicted grant is not adopted. The claim's ttl begins anew, and its
    /// attributes are set, as [`obtain`](Self::obtain) sets them. [`Obtained::Held`] names the
    /// holder; if the key has none, it names `grant` itself.
    ///
    /// # Errors
    ///
    /// Where the outcome is unknown.
    async fn adopt(&self, grant: &Grant, claim: &Claim) -> Result<Obtained, StoreError>;

    /// Returns the holder of `key`; `None` if the key has none.
    ///
    /// # Errors
    ///
    /// If the outcome is unknown.
    async fn holder(&self, key: &LeaseKey) -> Result<Option<Holder>, StoreError>;

    /// Sends many heartbeats and answers as they come, each with its place in `beats`: a slow
    /// or failing one holds up no other.
    ///
    /// The heartbeater hands over at most a few hundred at a time. By default, each is a
    /// [`heartbeat`](Self::heartbeat) of its own, all at once; stores that can batch override
    /// this. A place that gets no answer counts as unanswered.
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

    /// Watches `key` for being freed by a release.
    ///
    /// The watch is registered when this returns: what is released after that wakes it, so an
    /// attempt made in between misses nothing. It may wake for nothing, and an expiry need not
    /// wake it. The default never wakes: waiters then poll.
    ///
    /// # Errors
    ///
    /// Where no watch could be registered; waiters then poll.
    async fn watch(&self, key: &LeaseKey) -> Result<Freed, StoreError> {
        let _ = key;
        Ok(Freed::never())
    }

    /// How much earlier than `ttl` the store may free a key, because its clock is coarse.
    ///
    /// Zero by default; a store that counts whole milliseconds says one millisecond. Holders
    /// end that much sooner.
    fn grain(&self) -> Duration {
        Duration::ZERO
    }
}

/// Completes when a watched key may be free.
///
/// Dropping it ends the watch.
#[must_use = "a watch does nothing unless it is awaited"]
pub struct Freed {
    wake: Option<BoxFuture<'static, ()>>,
}

impl Freed {
    /// A watch that wakes when `wake` completes. Whoever implements a store registers the
    /// watch *before* building this.
    pub fn when(wake: impl Future<Output = ()> + Send + 'static) -> Self {
        Self { wake: Some(Box::pin(wake)) }
    }

    /// A watch that never wakes, for stores that cannot tell.
    pub fn never() -> Self {
        Self { wake: None }
    }

    /// Whether this watch can wake at all. Where it cannot, waiters poll more often.
    pub fn can_wake(&self) -> bool {
        self.wake.is_some()
    }
}

impl Future for Freed {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        match &mut self.wake {
            Some(wake) => wake.as_mut().poll(context),
            None => Poll::Pending,
        }
    }
}

impl fmt::Debug for Freed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Freed").field("can_wake", &self.can_wake()).finish()
    }
}

// A forwarded trait must not fall back to a default by accident.
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

    async fn watch(&self, key: &LeaseKey) -> Result<Freed, StoreError> {
        (**self).watch(key).await
    }

    fn grain(&self) -> Duration {
        (**self).grain()
    }
}
