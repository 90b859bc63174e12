//! The lock operations of `RedisStore`.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use lease_core::store::{
    Beat, Claim, Freed, Grant, Heartbeat, HeldKey, InTurn, LockStore, Obtained, Sessions,
};
use lease_core::{GrantId, Holder, LeaseKey, StoreError, StoreErrorKind};
use redis::Value;
use tokio::select;
use tokio::time::sleep;

use crate::connection::node::Node;
use crate::connection::watches::Watch;
use crate::scripts::{self, BATCH, BATCHES_AT_ONCE, GRAIN};
use crate::single::RedisStore;
use crate::single::obtain::{ClaimKind, ClaimRequest};
use crate::single::requests::ClaimReply;

#[async_trait]
impl LockStore for RedisStore {
    async fn obtain(&self, claim: &Claim) -> Result<Obtained, StoreError> {
        refuse_child(claim)?;
        let reply = self.claim(&ClaimRequest::new(claim, ClaimKind::FreeKey)?).await?;
        obtained(claim, reply).ok_or_else(|| self.node.unreadable("obtain").into())
    }

    async fn heartbeat(&self, grant: &Grant, beat: Beat) -> Result<Heartbeat, StoreError> {
        let beats = [(grant.clone(), beat)];
        let reply = self.node.heartbeat(&beats).await.into_iter().next();
        Ok(reply.ok_or_else(|| self.node.unreadable("heartbeat"))??)
    }

    async fn release(&self, grant: &Grant, reserved: Option<Duration>) -> Result<(), StoreError> {
        let node = &self.node;
        node.grants().note_released(grant.nonce);
        if let Some(length) = reserved {
            let call = node.reserve_call(grant, length);
            return Ok(Box::pin(node.call_bool(&call)).await.map(drop)?);
        }
        if !node.has_locks() {
            return Ok(Box::pin(self.released(grant)).await?);
        }
        Ok(self.batches.release(grant.clone()).await.map(drop)?)
    }

    async fn adopt(&self, grant: &Grant, claim: &Claim) -> Result<Obtained, StoreError> {
        let reply = self.claim(&ClaimRequest::new(claim, ClaimKind::HandedOver(grant))?).await?;
        let gone = || Obtained::Held(grant.holder(Some(Duration::ZERO)));
        Ok(obtained(claim, reply).unwrap_or_else(gone))
    }

    async fn holder(&self, key: &LeaseKey) -> Result<Option<Holder>, StoreError> {
        let holders = self.node.holders(std::slice::from_ref(key)).await?;
        Ok(holders.into_iter().next().flatten())
    }

    fn heartbeat_all<'a>(
        &'a self,
        beats: &'a [(Grant, Beat)],
    ) -> BoxStream<'a, (usize, Result<Heartbeat, StoreError>)> {
        let batch = if self.node.has_locks() { BATCH } else { 1 };
        let batches = beats.chunks(batch).enumerate().map(move |(number, beats)| async move {
            let replies = self.node.heartbeat(beats).await;
            let answers = replies.into_iter().enumerate().map(move |(place, reply)| {
                (number * batch + place, reply.map_err(StoreError::from))
            });
            stream::iter(answers)
        });
        stream::iter(batches).buffer_unordered(BATCHES_AT_ONCE).flatten().boxed()
    }

    async fn evict(&self, key: &LeaseKey, grant: &GrantId) -> Result<bool, StoreError> {
        let call = scripts::EVICT.on([self.node.keys.lease(key)]).arg(grant.as_str());
        match self.node.call_at_once(&call).await? {
            Value::Int(CHILD) => {
                let text = "a lease under a session cannot be evicted: evict its session";
                Err(StoreError::new(StoreErrorKind::Refused, text))
            }
            Value::Int(evicted) => Ok(evicted == 1),
            _ => Err(self.node.unreadable("evict").into()),
        }
    }

    fn scan(&self, prefix: &str) -> BoxStream<'_, Result<HeldKey, StoreError>> {
        self.scan_held(prefix)
    }

    async fn watch(&self, key: &LeaseKey) -> Result<Freed, StoreError> {
        let watch = self.node.watch(self.node.keys.channel(key)).await?;
        Ok(Freed::when(freed(Arc::clone(&self.node), key.clone(), watch)))
    }

    /// Returns `None` in a Cluster, where no script may use several keys while their slot moves. Returns
    /// `None` with replicas, because a release that grants the key to a waiter cannot wait for them.
    fn in_turn(&self) -> Option<&dyn InTurn> {
        (self.node.has_locks() && self.replicas == 0).then_some(self)
    }

    fn sessions(&self) -> Option<&dyn Sessions> {
        Some(self)
    }

    fn grain(&self) -> Duration {
        GRAIN
    }
}

/// Only `obtain_under` checks what a claim under a session has seen.
fn refuse_child(claim: &Claim) -> Result<(), StoreError> {
    if claim.parent.is_none() {
        return Ok(());
    }
    let text = "a claim under a session is made by `obtain_under`";
    Err(StoreError::new(StoreErrorKind::Refused, text))
}

/// A release is published only if a client waits, so this function first marks the key. A claim of this store
/// may have marked the key since the watch began.
async fn freed(node: Arc<Node>, key: LeaseKey, mut watch: Watch) {
    while !watch.is_marked() {
        match node.mark(&key).await {
            Ok(true) => break,
            // The key was released after the watch began, or was not held.
            Ok(false) => return,
            Err(_) => select! {
                biased;
                _ = watch.next() => return,
                () = sleep(node.timeout) => (),
            },
        }
    }
    watch.next().await;
}

/// Returns `None` if the key is free and the grant to adopt does not exist.
pub(crate) fn obtained(claim: &Claim, reply: ClaimReply) -> Option<Obtained> {
    match reply {
        ClaimReply::Granted(request, token, attributes) => {
            Some(Obtained::Granted(claim.granted_to(request, token), attributes))
        }
        ClaimReply::Held(holder) => Some(Obtained::Held(holder)),
        ClaimReply::Gone => None,
    }
}

const CHILD: i64 = 2;
