//! Queues of waiters behind a bad network.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::runtime::Handle;
use tokio::select;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

use crate::conformance::kit::faulty::fault::unanswered;
use crate::conformance::kit::faulty::{Call, Fault, Faulty};
use crate::error::{StoreError, StoreErrorKind};
use crate::store::grant::Claim;
use crate::store::in_turn::{Enqueued, InTurn, Notice, Notices};
use crate::store::lock_store::LockStore;

/// Notices have the latency of requests, but no faults.
#[async_trait]
impl<S: LockStore> InTurn for Faulty<S> {
    async fn listen(&self, claim: &Claim) -> Result<Notices, StoreError> {
        let fault = self.plan().take_planned(Call::Listen);
        match fault {
            Some(Fault::Fail) => return Err(unanswered()),
            Some(Fault::Hang) => return pending().await,
            _ => (),
        }
        let (answer, answered) = oneshot::channel();
        let (notify, notices) = mpsc::unbounded_channel();
        let (store, latency, claim) = (Arc::clone(&self.store), self.latency, claim.clone());
        let network = self.network.clone().unwrap_or_else(Handle::current);
        network.spawn(async move {
            let listened = match queues(&*store) {
                Ok(queues) => queues.listen(&claim).await,
                Err(error) => Err(error),
            };
            match listened {
                Ok(notices) => {
                    drop(answer.send(Ok(notices.can_notify())));
                    forward(notices, notify, latency).await;
                }
                Err(error) => drop(answer.send(Err(error))),
            }
        });
        match answered.await {
            Ok(can_notify) => Ok(if can_notify? { notices.into() } else { Notices::never() }),
            Err(_ended) => pending().await,
        }
    }

    async fn enqueue(&self, claim: &Claim) -> Result<Enqueued, StoreError> {
        let claim = claim.clone();
        self.call(Call::Enqueue, move |store| {
            let claim = claim.clone();
            async move { queues(&*store)?.enqueue(&claim).await }
        })
        .await
    }

    async fn renew(&self, claim: &Claim) -> Result<Enqueued, StoreError> {
        let claim = claim.clone();
        self.call(Call::Enqueue, move |store| {
            let claim = claim.clone();
            async move { queues(&*store)?.renew(&claim).await }
        })
        .await
    }

    async fn leave(&self, claim: &Claim) -> Result<(), StoreError> {
        let claim = claim.clone();
        self.call(Call::Leave, move |store| {
            let claim = claim.clone();
            async move { queues(&*store)?.leave(&claim).await }
        })
        .await
    }
}

/// Ends when the waiter is dropped, or when a notice may have been missed.
async fn forward(mut notices: Notices, notify: mpsc::UnboundedSender<Notice>, latency: Duration) {
    loop {
        let notice = select! {
            biased;
            () = notify.closed() => return,
            notice = notices.next() => notice,
        };
        if !latency.is_zero() {
            sleep(latency).await;
        }
        let is_last = notice == Notice::Missed;
        if notify.send(notice).is_err() || is_last {
            return;
        }
    }
}

fn queues<S: LockStore>(store: &S) -> Result<&dyn InTurn, StoreError> {
    let none = || StoreError::new(StoreErrorKind::Unsupported, "this store keeps no queues");
    store.in_turn().ok_or_else(none)
}
