//! The kinds of calls and faults, and how a fault changes a request.

use std::future::Future;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::error::{StoreError, StoreErrorKind};

/// The kind of request that a fault applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Call {
    /// [`LockStore::obtain`](crate::store::LockStore::obtain) and [`obtain_under`](crate::store::Sessions::obtain_under).
    Obtain,
    /// [`LockStore::heartbeat`](crate::store::LockStore::heartbeat).
    Heartbeat,
    /// [`LockStore::release`](crate::store::LockStore::release).
    Release,
    /// [`LockStore::adopt`](crate::store::LockStore::adopt).
    Adopt,
    /// A write of [`LeaseTable`](crate::store::LeaseTable) or of [`Sessions`](crate::store::Sessions), or an eviction.
    Write,
    /// A read of the holder, of one record, or of a list or scan.
    Read,
    /// [`InTurn::enqueue`](crate::store::InTurn::enqueue) and [`InTurn::renew`](crate::store::InTurn::renew).
    Enqueue,
    /// [`InTurn::leave`](crate::store::InTurn::leave).
    Leave,
    /// [`InTurn::listen`](crate::store::InTurn::listen). The call can [`Fail`](Fault::Fail) or
    /// [`Hang`](Fault::Hang), but [`choose`](super::Faulty::choose) does not see it.
    Listen,
}

/// A fault of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The request is not applied, and the caller gets an error at once.
    Fail,
    /// The request is not applied, and the caller never gets an answer.
    Hang,
    /// The request is applied, and the caller gets an error. A list returns its first half, and
    /// then the error.
    LoseReply,
    /// The request is applied, and the caller never gets an answer.
    HangReply,
    /// The request is applied and answered after this delay.
    DelayRequest(Duration),
    /// The request is applied at once, and answered after this delay.
    DelayReply(Duration),
    /// The caller gets an error at once, and the request is applied after this delay.
    ApplyLate(Duration),
    /// The request is applied and answered, and applied again after this delay.
    Double(Duration),
}

pub(super) async fn apply_with<T, A: Future<Output = Result<T, StoreError>>>(
    fault: Option<Fault>,
    apply: impl Fn() -> A,
    mut reply: oneshot::Sender<Result<T, StoreError>>,
) {
    match fault {
        None => drop(reply.send(apply().await)),
        Some(Fault::Fail) => drop(reply.send(Err(unanswered()))),
        Some(Fault::Hang) => {
            // This task ends when the caller stops waiting.
            reply.closed().await;
        }
        Some(Fault::LoseReply) => {
            drop(apply().await);
            drop(reply.send(Err(unanswered())));
        }
        Some(Fault::HangReply) => {
            drop(apply().await);
            reply.closed().await;
        }
        Some(Fault::DelayRequest(delay)) => {
            sleep(delay).await;
            drop(reply.send(apply().await));
        }
        Some(Fault::DelayReply(delay)) => {
            let applied = apply().await;
            sleep(delay).await;
            drop(reply.send(applied));
        }
        Some(Fault::ApplyLate(delay)) => {
            drop(reply.send(Err(unanswered())));
            sleep(delay).await;
            drop(apply().await);
        }
        Some(Fault::Double(delay)) => {
            drop(reply.send(apply().await));
            sleep(delay).await;
            drop(apply().await);
        }
    }
}

pub(super) fn unanswered() -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, "connection reset (as planned)")
}
