//! Leases behind a bad network.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::{self, BoxStream, FuturesUnordered};
use futures_util::{FutureExt, StreamExt};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::conformance::kit::faulty::{Call, Faulty};
use crate::error::StoreError;
use crate::key::LeaseKey;
use crate::store::grant::{Beat, Claim, Grant, GrantId, Heartbeat, HeldKey, Holder, Obtained};
use crate::store::in_turn::InTurn;
use crate::store::lock_store::{Freed, LockStore};
use crate::store::session::Sessions;

#[async_trait]
impl<S: LockStore> LockStore for Faulty<S> {
    async fn obtain(&self, claim: &Claim) -> Result<Obtained, StoreError> {
        let claim = claim.clone();
        self.call(Call::Obtain, move |store| {
            let claim = claim.clone();
            async move { store.obtain(&claim).await }
        })
        .await
    }

    async fn heartbeat(&self, grant: &Grant, beat: Beat) -> Result<Heartbeat, StoreError> {
        let grant = grant.clone();
        self.call(Call::Heartbeat, move |store| {
            let grant = grant.clone();
            async move { store.heartbeat(&grant, beat).await }
        })
        .await
    }

    async fn release(&self, grant: &Grant, reserved: Option<Duration>) -> Result<(), StoreError> {
        let grant = grant.clone();
        self.call(Call::Release, move |store| {
            let grant = grant.clone();
            async move { store.release(&grant, reserved).await }
        })
        .await
    }

    async fn adopt(&self, grant: &Grant, claim: &Claim) -> Result<Obtained, StoreError> {
        let asked = (grant.clone(), claim.clone());
        self.call(Call::Adopt, move |store| {
            let (grant, claim) = asked.clone();
            async move { store.adopt(&grant, &claim).await }
        })
        .await
    }

    async fn holder(&self, key: &LeaseKey) -> Result<Option<Holder>, StoreError> {
        let key = key.clone();
        self.call(Call::Read, move |store| {
            let key = key.clone();
            async move { store.holder(&key).await }
        })
        .await
    }

    async fn evict(&self, key: &LeaseKey, grant: &GrantId) -> Result<bool, StoreError> {
        let asked = (key.clone(), grant.clone());
        self.call(Call::Write, move |store| {
            let (key, grant) = asked.clone();
            async move { store.evict(&key, &grant).await }
        })
        .await
    }

    fn scan(&self, prefix: &str) -> BoxStream<'_, Result<HeldKey, StoreError>> {
        self.list_in_halves(prefix, |store, prefix| {
            async move { store.scan(&prefix).collect().await }.boxed()
        })
    }

    async fn watch(&self, key: &LeaseKey) -> Result<Freed, StoreError> {
        self.store.watch(key).await
    }

    /// Uses the store's own batches, unless a fault is planned for heartbeats.
    fn heartbeat_all<'a>(
        &'a self,
        beats: &'a [(Grant, Beat)],
    ) -> BoxStream<'a, (usize, Result<Heartbeat, StoreError>)> {
        if self.plan().has_fault_for(Call::Heartbeat) {
            let one = |(place, (grant, beat)): (usize, &'a (Grant, Beat))| async move {
                (place, self.heartbeat(grant, *beat).await)
            };
            return beats.iter().enumerate().map(one).collect::<FuturesUnordered<_>>().boxed();
        }
        *self.plan().calls.entry(Call::Heartbeat).or_default() += beats.len();
        let (answered, answers) = mpsc::unbounded_channel();
        let (store, latency) = (Arc::clone(&self.store), self.latency);
        let beats = beats.to_vec();
        let network = self.network.clone().unwrap_or_else(Handle::current);
        network.spawn(async move {
            if !latency.is_zero() {
                sleep(latency).await;
            }
            let mut stream = store.heartbeat_all(&beats);
            while let Some(answer) = stream.next().await {
                drop(answered.send(answer));
            }
        });
        let next = |mut answers: mpsc::UnboundedReceiver<_>| async move {
            let answer = answers.recv().await?;
            Some((answer, answers))
        };
        stream::unfold(answers, next).boxed()
    }

    fn in_turn(&self) -> Option<&dyn InTurn> {
        self.store.in_turn().map(|_queues| self as &dyn InTurn)
    }

    fn sessions(&self) -> Option<&dyn Sessions> {
        self.store.sessions().map(|_sessions| self as &dyn Sessions)
    }

    fn grain(&self) -> Duration {
        self.store.grain()
    }
}
