//! A sabotage: a store that gives the answer of one claim to another claim.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use lease_core::store::{
    Beat, Claim, Freed, Grant, Heartbeat, HeldKey, InTurn, LockStore, Obtained, Sessions,
};
use lease_core::{GrantId, Holder, LeaseKey, StoreError};
use lease_test_servers::sync::lock;
use tokio::sync::oneshot;

/// Swaps the answers of a refused claim and of the next granted claim, like a client that confuses
/// the answers of a batch.
#[derive(Debug)]
pub(crate) struct Swapped {
    store: Arc<dyn LockStore>,
    refused: Mutex<Option<Refused>>,
}

#[derive(Debug)]
struct Refused {
    claim: Claim,
    holder: Holder,
    answer: oneshot::Sender<Obtained>,
}

impl Swapped {
    pub(crate) fn new(store: Arc<dyn LockStore>) -> Self {
        Self { store, refused: Mutex::default() }
    }

    async fn refuse(&self, claim: &Claim, holder: Holder) -> Obtained {
        let (answer, answered) = oneshot::channel();
        {
            let mut refused = lock(&self.refused);
            if refused.as_ref().is_some_and(|refused| !refused.answer.is_closed()) {
                return Obtained::Held(holder);
            }
            let (claim, holder) = (claim.clone(), holder.clone());
            *refused = Some(Refused { claim, holder, answer });
        }
        answered.await.unwrap_or(Obtained::Held(holder))
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl LockStore for Swapped {
    async fn obtain(&self, claim: &Claim) -> Result<Obtained, StoreError> {
        match self.store.obtain(claim).await? {
            Obtained::Held(holder) => Ok(self.refuse(claim, holder).await),
            Obtained::Granted(grant, attributes) => {
                let refused = lock(&self.refused).take();
                let Some(refused) = refused.filter(|refused| refused.claim.key != claim.key) else {
                    return Ok(Obtained::Granted(grant, attributes));
                };
                let wrong = refused.claim.granted(grant.token);
                match refused.answer.send(Obtained::Granted(wrong, attributes.clone())) {
                    Ok(()) => Ok(Obtained::Held(refused.holder)),
                    Err(_dropped) => Ok(Obtained::Granted(grant, attributes)),
                }
            }
        }
    }

    async fn heartbeat(&self, grant: &Grant, beat: Beat) -> Result<Heartbeat, StoreError> {
        self.store.heartbeat(grant, beat).await
    }

    async fn release(&self, grant: &Grant, reserved: Option<Duration>) -> Result<(), StoreError> {
        self.store.release(grant, reserved).await
    }

    async fn adopt(&self, grant: &Grant, claim: &Claim) -> Result<Obtained, StoreError> {
        self.store.adopt(grant, claim).await
    }

    async fn holder(&self, key: &LeaseKey) -> Result<Option<Holder>, StoreError> {
        self.store.holder(key).await
    }

    fn heartbeat_all<'a>(
        &'a self,
        beats: &'a [(Grant, Beat)],
    ) -> BoxStream<'a, (usize, Result<Heartbeat, StoreError>)> {
        self.store.heartbeat_all(beats)
    }

    async fn evict(&self, key: &LeaseKey, grant: &GrantId) -> Result<bool, StoreError> {
        self.store.evict(key, grant).await
    }

    fn scan(&self, prefix: &str) -> BoxStream<'_, Result<HeldKey, StoreError>> {
        self.store.scan(prefix)
    }

    async fn watch(&self, key: &LeaseKey) -> Result<Freed, StoreError> {
        self.store.watch(key).await
    }

    /// A queue grants keys at releases. The sabotage swaps only the answers of claims.
    fn in_turn(&self) -> Option<&dyn InTurn> {
        None
    }

    fn sessions(&self) -> Option<&dyn Sessions> {
        self.store.sessions()
    }

    fn grain(&self) -> Duration {
        self.store.grain()
    }
}
