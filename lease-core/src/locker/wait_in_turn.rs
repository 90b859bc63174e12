//! A wait for a key that reports its position in the queue.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use tokio::sync::watch;

use crate::error::StoreError;
use crate::lease::Lease;

/// Waits until a key is obtained, and reports the waiter's position. Made by
/// [`Locker::wait_in_turn`](crate::Locker::wait_in_turn).
///
/// # Cancel safety
///
/// As for [`Locker::wait_until_obtained`](crate::Locker::wait_until_obtained). A dropped wait leaves the
/// queue.
#[must_use = "a wait makes no progress unless it is awaited"]
pub struct WaitInTurn {
    pub(super) wait: BoxFuture<'static, Result<Lease, StoreError>>,
    pub(super) position: watch::Receiver<Option<u64>>,
}

impl WaitInTurn {
    /// The number of waiters before this waiter in the queue of the store.
    ///
    /// `None` before the first answer of the store, and if the store keeps no queue for the key. The
    /// position may be a third of a ttl old. Crashed waiters count until their places expire.
    pub fn position(&self) -> Option<u64> {
        *self.position.borrow()
    }

    /// The position as a [`Receiver`](https://docs.rs/tokio/1/tokio/sync/watch/struct.Receiver.html), which
    /// another task can watch.
    pub fn positions(&self) -> watch::Receiver<Option<u64>> {
        self.position.clone()
    }
}

impl Future for WaitInTurn {
    type Output = Result<Lease, StoreError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.wait.as_mut().poll(context)
    }
}

impl fmt::Debug for WaitInTurn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitInTurn").field("position", &self.position()).finish_non_exhaustive()
    }
}
