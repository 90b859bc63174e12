//! The lock operations of `RedisQuorum`: Redlock, with fencing tokens.
//!
//! <https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/>

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::{self, BoxStream, FuturesUnordered};
use futures_util::{FutureExt, StreamExt};
use lease_core::store::{Beat, Claim, Freed, Grant, Heartbeat, LockStore, Obtained};
use lease_core::{Holder, LeaseKey, StoreError};
use tokio::select;
use tokio::time::sleep;

use crate::connection::node::Node;
use crate::error::ServerFault;
use crate::lock_requests::{BATCH, BATCHES_AT_ONCE, Deployment, GRAIN, Vote, expired_holder};
use crate::quorum::RedisQuorum;
use crate::quorum::ballot::{Ballot, too_few};
use crate::quorum::heartbeat::send_heartbeats;
use crate::quorum::obtain::{Outcome, PATIENCE, QuorumClaim};

#[async_trait]
impl LockStore for RedisQuorum {
    async fn obtain(&self, claim: &Claim) -> Result<Obtained, StoreError> {
        refuse_attributes(claim)?;
        self.nodes.check(claim.ttl)?;
        let quorum_claim = QuorumClaim::new(&self.nodes, claim);
        match quorum_claim.obtain(Node::obtain_call).await? {
            Outcome::Granted(kind, token, attributes) => {
                Ok(Obtained::Granted(kind.grant(claim, token), attributes))
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
        let mut releases = self.nodes.send_all(|node| {
            let call = node.release_call(grant, reserved, Deployment::Quorum);
            async move { node.call_bool(&call).await }
        });
        let (mut done, mut followed, mut faults) = (0, 0, Vec::new());
        while let Some((_, release)) = releases.next().await {
            match release {
                Ok(true) => done += 1,
                // On this node, another lessee has obtained the key already.
                Ok(false) => followed += 1,
                Err(fault) => faults.push(fault),
            }
            // A reservation is valid once a majority has written it. A release without a reservation only
            // needs a majority without the grant.
            let settled = if reserved.is_some() { done.max(followed) } else { done + followed };
            if settled >= self.nodes.majority() {
                self.nodes.in_background(releases, |_, _| async {});
                return Ok(());
            }
        }
        if faults.is_empty() {
            return Ok(());
        }
        Err(too_few(done, self.nodes.count(), &faults).into())
    }

    async fn adopt(&self, grant: &Grant, claim: &Claim) -> Result<Obtained, StoreError> {
        refuse_attributes(claim)?;
        self.nodes.check(claim.ttl)?;
        let quorum_claim = QuorumClaim::new(&self.nodes, claim);
        match quorum_claim
            .obtain_once(|node, claim, round| node.adopt_call(grant, claim, round))
            .await?
        {
            Outcome::Granted(kind, token, attributes) => {
                Ok(Obtained::Granted(kind.grant(claim, token), attributes))
            }
            Outcome::Held(holder) => {
                Ok(Obtained::Held(holder.unwrap_or_else(|| expired_holder(grant))))
            }
        }
    }

    async fn holder(&self, key: &LeaseKey) -> Result<Option<Holder>, StoreError> {
        let mut answers = self.nodes.send_all(|node| {
            let key = key.clone();
            async move { node.holder(&key).await }
        });
        let mut ballot = Ballot::new(self.nodes.count());
        loop {
            // Once the holder is known, the nodes agree on its token shortly, so a short wait suffices and
            // no hung node delays the answer.
            let patience = if ballot.holder().is_some() { PATIENCE } else { Duration::MAX };
            let needed = ballot.needed_of_missing().map(|_| 1);
            let answer = self.nodes.next_answer(&ballot, &mut answers, needed, patience).await;
            let Some((place, answer)) = answer else { break };
            ballot.add(place, answer.map(|rival| rival.map_or(Vote::Gone, Vote::Held)));
            if ballot.holder().is_some() && ballot.holder_is_agreed() {
                break;
            }
            if ballot.answered() >= self.nodes.majority() && !ballot.holder_may_be_unknown() {
                return Ok(None);
            }
        }
        if ballot.answered() >= self.nodes.majority() {
            // Only this lessee can have a majority, together with nodes that did not answer.
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

    async fn watch(&self, key: &LeaseKey) -> Result<Freed, StoreError> {
        let mut registering = self.nodes.send_all(|node| {
            let channel = node.keys.channel(key);
            async move {
                let watch = node.watch(channel.clone()).await;
                watch.map_err(|fault| (fault, node, channel))
            }
        });
        let majority = self.nodes.majority();
        let (mut notices, mut registered) = (FuturesUnordered::new(), 0);
        let mut faults = Vec::new();
        while registered < majority {
            match registering.next().await {
                Some((_, Ok(watch))) => {
                    registered += 1;
                    notices.push(watch.woken().boxed());
                }
                Some((_, Err((fault, node, channel)))) => {
                    faults.push(fault);
                    notices.push(watched_late(node, channel).boxed());
                }
                None => return Err(too_few(registered, self.nodes.count(), &faults).into()),
            }
        }
        // A notice says that the key is free on one node. A claim may succeed once a majority is free. All
        // nodes are watched: of a bare majority, only one node may have had the grant.
        Ok(Freed::when(async move {
            let mut heard = 0;
            while heard < majority {
                select! {
                    // Notices first, since they may suffice.
                    biased;
                    Some(()) = notices.next() => heard += 1,
                    Some((_, registered)) = registering.next() => notices.push(match registered {
                        Ok(watch) => watch.woken().boxed(),
                        Err((_, node, channel)) => watched_late(node, channel).boxed(),
                    }),
                    else => return,
                }
            }
        }))
    }

    /// One millisecond, the resolution of expiries in Redis.
    fn grain(&self) -> Duration {
        GRAIN
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

/// Watches `node` after the first attempt has failed. Completion counts as a notice, since a notice may
/// have been missed in the meantime.
async fn watched_late(node: Arc<Node>, channel: String) {
    loop {
        sleep(node.timeout).await;
        if node.watch(channel.clone()).await.is_ok() {
            return;
        }
    }
}
