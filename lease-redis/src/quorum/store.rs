//! The lock operations of `RedisQuorum`: Redlock, with fencing tokens.
//!
//! <https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/>

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use lease_core::store::{Beat, Claim, Freed, Grant, Heartbeat, HeldKey, LockStore, Obtained};
use lease_core::{Attributes, GrantId, Holder, LeaseKey, StoreError};

use crate::error::ServerFault;
use crate::quorum::RedisQuorum;
use crate::quorum::heartbeat::send_heartbeats;
use crate::quorum::nodes::requests::Query;
use crate::quorum::obtain::{Outcome, PATIENCE, QuorumClaim};
use crate::quorum::operating;
use crate::quorum::release::Release;
use crate::quorum::voting::ballot::{Ballot, too_few};
use crate::quorum::watch::watch;
use crate::scripts::{BATCH, BATCHES_AT_ONCE, GRAIN};

#[async_trait]
impl LockStore for RedisQuorum {
    async fn obtain(&self, claim: &Claim) -> Result<Obtained, StoreError> {
        refuse_attributes(claim)?;
        self.nodes.check(claim.ttl)?;
        match QuorumClaim::obtaining(&self.nodes, claim).obtain().await? {
            Outcome::Granted(token) => {
                Ok(Obtained::Granted(claim.granted(token), Attributes::new()))
            }
            Outcome::Held(Some(holder)) => Ok(Obtained::Held(holder)),
            Outcome::Held(None) => Err(ServerFault::corrupt("the nodes refuse a free key").into()),
        }
    }

    async fn heartbeat(&self, grant: &Grant, beat_number: Beat) -> Result<Heartbeat, StoreError> {
        self.nodes.check(grant.ttl)?;
        let mut answers = send_heartbeats(&self.nodes, Arc::new([(grant.clone(), beat_number)]));
        match answers.recv().await {
            Some((_, answer)) => answer,
            None => Err(ServerFault::unavailable("the runtime has ended").into()),
        }
    }

    async fn release(&self, grant: &Grant, reserved: Option<Duration>) -> Result<(), StoreError> {
        match reserved {
            None => Ok(Release::send(&self.nodes, grant).settled().await?),
            Some(length) => Ok(self.reserve(grant, length).await?),
        }
    }

    async fn adopt(&self, grant: &Grant, claim: &Claim) -> Result<Obtained, StoreError> {
        refuse_attributes(claim)?;
        self.nodes.check(claim.ttl)?;
        match QuorumClaim::adopting(&self.nodes, grant, claim).adopt(grant.token).await? {
            Outcome::Granted(token) => {
                Ok(Obtained::Granted(claim.granted(token), Attributes::new()))
            }
            // If no lessee holds the key, returns the holder of `grant` itself.
            Outcome::Held(holder) => {
                Ok(Obtained::Held(holder.unwrap_or_else(|| grant.holder(Some(Duration::ZERO)))))
            }
        }
    }

    async fn holder(&self, key: &LeaseKey) -> Result<Option<Holder>, StoreError> {
        let mut answers = self.nodes.send_all(|node| {
            let key = key.clone();
            async move { node.holder_here(&key, Query::OfReader).await }
        });
        let mut ballot = Ballot::new(self.nodes.count());
        loop {
            // Once the holder is known, the nodes soon agree on its token. So a short wait suffices.
            let patience = if ballot.holder().is_some() { PATIENCE } else { Duration::MAX };
            let needed = ballot.needed_of_missing().map(|_| 1);
            let answer = self.nodes.next_answer(&ballot, &mut answers, needed, patience).await;
            let Some((place, answer)) = answer else { break };
            ballot.add(place, answer);
            if ballot.holder().is_some() && ballot.holder_is_agreed() {
                break;
            }
            if ballot.answered() >= self.nodes.majority() && !ballot.holder_may_be_unknown() {
                return Ok(None);
            }
        }
        if ballot.answered() >= self.nodes.majority() {
            // With the votes of nodes that did not answer, only this lessee can have a majority.
            return Ok(ballot.nearest());
        }
        Err(too_few(ballot.answered(), self.nodes.count(), &ballot.faults).into())
    }

    fn heartbeat_all<'a>(
        &'a self,
        beats: &'a [(Grant, Beat)],
    ) -> BoxStream<'a, (usize, Result<Heartbeat, StoreError>)> {
        let batches = beats.chunks(BATCH).enumerate().map(|(number, beats)| {
            let answers = send_heartbeats(&self.nodes, beats.into());
            stream::unfold(answers, move |mut answers| async move {
                let (place, answer) = answers.recv().await?;
                Some(((number * BATCH + place, answer), answers))
            })
            .boxed()
        });
        stream::iter(batches).flatten_unordered(BATCHES_AT_ONCE).boxed()
    }

    async fn evict(&self, key: &LeaseKey, grant: &GrantId) -> Result<bool, StoreError> {
        Ok(operating::evict(&self.nodes, key, grant).await?)
    }

    fn scan(&self, prefix: &str) -> BoxStream<'_, Result<HeldKey, StoreError>> {
        operating::scan(&self.nodes, prefix)
    }

    async fn watch(&self, key: &LeaseKey) -> Result<Freed, StoreError> {
        Ok(watch(&self.nodes, key).await?)
    }

    fn grain(&self) -> Duration {
        GRAIN
    }
}

impl RedisQuorum {
    /// The reservation is valid when a majority has written it.
    async fn reserve(&self, grant: &Grant, length: Duration) -> Result<(), ServerFault> {
        self.nodes.asked.take(grant.nonce);
        let mut answers = self.nodes.send_all(|node| {
            let grant = grant.clone();
            async move { node.reserve(&grant, length).await }
        });
        let (mut reserved, mut followed, mut faults) = (0, 0, Vec::new());
        while let Some((_, answer)) = answers.next().await {
            match answer {
                Ok(true) => reserved += 1,
                // On this node, another lessee has already obtained the key.
                Ok(false) => followed += 1,
                Err(fault) => faults.push(fault),
            }
            if reserved.max(followed) >= self.nodes.majority() {
                self.nodes.in_background(answers, |_, _| async {});
                return Ok(());
            }
        }
        if faults.is_empty() {
            return Ok(());
        }
        Err(too_few(reserved, self.nodes.count(), &faults))
    }
}

fn refuse_attributes(claim: &Claim) -> Result<(), ServerFault> {
    if claim.attributes.is_empty() {
        return Ok(());
    }
    Err(ServerFault::misconfigured(
        "a quorum keeps no records, so a claim cannot set attributes: remove `with_attributes` from \
         the locker, or use `RedisStore`",
    ))
}
