//! The lock operations of `RedisStore`.

use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use lease_core::store::{Beat, Claim, Freed, Grant, Heartbeat, HeldKey, LockStore, Obtained};
use lease_core::{GrantId, Holder, LeaseKey, StoreError};

use crate::connection::connector::Role;
use crate::lock_requests::{BATCH, BATCHES_AT_ONCE, Deployment, GRAIN, Vote, expired_holder};
use crate::scripts;
use crate::single::RedisStore;
use crate::single::obtain::ClaimRequest;

#[async_trait]
impl LockStore for RedisStore {
    async fn obtain(&self, claim: &Claim) -> Result<Obtained, StoreError> {
        match self.vote(&ClaimRequest::new(claim, None)?).await? {
            Vote::Granted(token, attributes, kind) => {
                Ok(Obtained::Granted(kind.grant(claim, token), attributes))
            }
            Vote::Held(rival) => Ok(Obtained::Held(rival.holder)),
            Vote::Gone => Err(self.node.unreadable("obtain").into()),
        }
    }

    async fn heartbeat(&self, grant: &Grant, beat: Beat) -> Result<Heartbeat, StoreError> {
        let beats = [(grant.clone(), beat)];
        let reply = self.node.heartbeat(&beats).await.into_iter().next();
        Ok(reply.ok_or_else(|| self.node.unreadable("heartbeat"))??.into())
    }

    async fn release(&self, grant: &Grant, reserved: Option<Duration>) -> Result<(), StoreError> {
        let call = self.node.release_call(grant, reserved, Deployment::Single);
        Ok(self.node.call_bool(&call).await.map(drop)?)
    }

    async fn adopt(&self, grant: &Grant, claim: &Claim) -> Result<Obtained, StoreError> {
        match self.vote(&ClaimRequest::new(claim, Some(grant))?).await? {
            Vote::Granted(token, attributes, kind) => {
                Ok(Obtained::Granted(kind.grant(claim, token), attributes))
            }
            Vote::Held(rival) => Ok(Obtained::Held(rival.holder)),
            Vote::Gone => Ok(Obtained::Held(expired_holder(grant))),
        }
    }

    async fn holder(&self, key: &LeaseKey) -> Result<Option<Holder>, StoreError> {
        Ok(self.node.holder(key).await?.map(|rival| rival.holder))
    }

    fn heartbeat_all<'a>(
        &'a self,
        beats: &'a [(Grant, Beat)],
    ) -> BoxStream<'a, (usize, Result<Heartbeat, StoreError>)> {
        let batch = match self.node.role() {
            Role::Cluster => 1,
            Role::Standalone | Role::Sentinel => BATCH,
        };
        let batches = beats.chunks(batch).enumerate().map(move |(number, beats)| async move {
            let replies = self.node.heartbeat(beats).await;
            let answers = replies.into_iter().enumerate().map(move |(place, reply)| {
                (number * batch + place, reply.map(Heartbeat::from).map_err(StoreError::from))
            });
            stream::iter(answers)
        });
        stream::iter(batches).buffer_unordered(BATCHES_AT_ONCE).flatten().boxed()
    }

    async fn evict(&self, key: &LeaseKey, grant: &GrantId) -> Result<bool, StoreError> {
        let Some(token) = grant.token() else { return Ok(false) };
        let call = scripts::EVICT.on([self.node.keys.lease(key)]).number(token.get());
        Ok(self.node.call_bool(&call).await?)
    }

    fn scan(&self, prefix: &str) -> BoxStream<'_, Result<HeldKey, StoreError>> {
        self.scan_held(prefix)
    }

    async fn watch(&self, key: &LeaseKey) -> Result<Freed, StoreError> {
        let watch = self.node.watch(self.node.keys.channel(key)).await?;
        Ok(Freed::when(watch.woken()))
    }

    /// One millisecond, the resolution of expiries in Redis.
    fn grain(&self) -> Duration {
        GRAIN
    }
}
