//! Leases on a majority of independent servers: Redlock, with fencing tokens.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::{self, BoxStream, FuturesUnordered};
use futures_util::{FutureExt, StreamExt};
use lease_core::{
    Beat, Claim, Freed, Grant, Heartbeat, Holder, LeaseKey, LockStore, Obtained, StoreError,
};
use tokio::select;
use tokio::time::sleep;

use crate::ballot::Ballot;
use crate::election::{Election, Outcome, PATIENCE};
use crate::error::Fault;
use crate::lock::{Standing, Vote};
use crate::node::Node;
use crate::nodes::Nodes;
use crate::pulse::beat;
use crate::quorum_config::{RedisQuorumBuilder, too_few};
use crate::store::{BATCH, BATCHES_AT_ONCE, GRAIN, gone};

/// Keeps leases on a majority of independent servers.
///
/// Any minority of them may hang, be cut off, or be gone, and nothing waits for it; what they
/// forget is in the [crate's table](crate#what-happens-when). Clones share connections.
///
/// Each grant carries a fencing token larger than every earlier one of its key, which usual
/// Redlock libraries cannot give: the largest number that a majority counted to is written back
/// to it before the grant is answered. While the nodes agree, that takes no second round trip; nor
/// does a key that nobody has taken before, if most of the nodes have been up for more than a second,
/// and their clocks are within a tenth of a second of each other.
///
/// Locks only: records with attributes belong on [one logical server](crate::RedisStore).
#[derive(Debug, Clone)]
pub struct RedisQuorum {
    nodes: Arc<Nodes>,
}

impl RedisQuorum {
    /// Connects to the independent servers at `urls`: all that there are, in any order.
    ///
    /// Three go on without one, five without two; one more of an even number makes nothing safer,
    /// and is what a [change of the list](crate#a-quorum) passes through.
    ///
    /// # Errors
    ///
    /// Where a majority is not there, or a server is set up such that it would lose leases, or
    /// is there twice; the text says what to do.
    pub async fn connect<U: Into<String>>(
        urls: impl IntoIterator<Item = U>,
    ) -> Result<Self, StoreError> {
        Self::builder(urls).connect().await
    }

    /// Sets up a quorum of the independent servers at `urls`.
    pub fn builder<U: Into<String>>(urls: impl IntoIterator<Item = U>) -> RedisQuorumBuilder {
        RedisQuorumBuilder::new(urls.into_iter().map(Into::into))
    }

    pub(crate) fn of(nodes: Nodes) -> Self {
        Self { nodes: Arc::new(nodes) }
    }
}

#[async_trait]
impl LockStore for RedisQuorum {
    async fn obtain(&self, claim: &Claim) -> Result<Obtained, StoreError> {
        self.nodes.check(claim.ttl)?;
        let election = Election::new(&self.nodes, claim);
        match election.hold(|node, round| node.obtain_call(claim, round)).await? {
            Outcome::Granted(token, attributes) => {
                Ok(Obtained::Granted(claim.granted(token), attributes))
            }
            Outcome::Held(Some(holder)) => Ok(Obtained::Held(holder)),
            Outcome::Held(None) => Err(Fault::corrupt("a key is held by nobody").into()),
        }
    }

    async fn heartbeat(&self, grant: &Grant, beat_number: Beat) -> Result<Heartbeat, StoreError> {
        self.nodes.check(grant.ttl)?;
        let mut answers = beat(&self.nodes, Arc::new([(grant.clone(), beat_number)]));
        match answers.recv().await {
            Some((_, answer)) => answer,
            None => Err(Fault::unavailable("the runtime has ended").into()),
        }
    }

    async fn release(&self, grant: &Grant, reserved: Option<Duration>) -> Result<(), StoreError> {
        let mut releases = self.nodes.ask(|node| {
            let call = node.release_call(grant, reserved, Standing::OneOfSeveral);
            async move { node.says_yes(&call).await }
        });
        let (mut done, mut followed, mut faults) = (0, 0, Vec::new());
        while let Some((_, release)) = releases.next().await {
            match release {
                Ok(true) => done += 1,
                // There the key went to somebody else already.
                Ok(false) => followed += 1,
                Err(fault) => faults.push(fault),
            }
            // A reservation holds where a majority has written it; without one, it only matters
            // that the grant is on no majority any more.
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
        self.nodes.check(claim.ttl)?;
        let election = Election::new(&self.nodes, claim);
        match election.hold_once(|node, round| node.adopt_call(grant, claim, round)).await? {
            Outcome::Granted(token, attributes) => {
                Ok(Obtained::Granted(claim.granted(token), attributes))
            }
            Outcome::Held(holder) => Ok(Obtained::Held(holder.unwrap_or_else(|| gone(grant)))),
        }
    }

    async fn holder(&self, key: &LeaseKey) -> Result<Option<Holder>, StoreError> {
        let mut answers = self.nodes.ask(|node| {
            let key = key.clone();
            async move { node.holder(&key).await }
        });
        let mut ballot = Ballot::new(self.nodes.count());
        loop {
            // Once it is known who has it, its token is agreed upon in a moment: then no node
            // that hangs is waited for.
            let patience = if ballot.holder().is_some() { PATIENCE } else { Duration::MAX };
            let needed = ballot.needed_of_missing().map(|_| 1);
            let answer = self.nodes.next_answer(&ballot, &mut answers, needed, patience).await;
            let Some((place, answer)) = answer else { break };
            ballot.add(place, answer.map(|rival| rival.map_or(Vote::Gone, Vote::Held)));
            if ballot.holder().is_some() && ballot.holder_is_agreed() {
                break;
            }
            if ballot.answered() >= self.nodes.majority() && !ballot.holder_may_be_unheard() {
                return Ok(None);
            }
        }
        if ballot.answered() >= self.nodes.majority() {
            // Those that did not answer may make up its majority: nobody else can have one.
            return Ok(ballot.nearest());
        }
        Err(too_few(ballot.answered(), self.nodes.count(), &ballot.faults).into())
    }

    fn heartbeat_all<'a>(
        &'a self,
        beats: &'a [(Grant, Beat)],
    ) -> BoxStream<'a, (usize, Result<Heartbeat, StoreError>)> {
        let batches = beats.chunks(BATCH).enumerate().map(|(number, beats)| {
            let answers = beat(&self.nodes, beats.into());
            stream::unfold(answers, move |mut answers| async move {
                let (place, answer) = answers.recv().await?;
                Some(((number * BATCH + place, answer), answers))
            })
            .boxed()
        });
        stream::iter(batches).flatten_unordered(BATCHES_AT_ONCE).boxed()
    }

    async fn watch(&self, key: &LeaseKey) -> Result<Freed, StoreError> {
        let mut registering = self.nodes.ask(|node| {
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
                    notices.push(heard_again(node, channel).boxed());
                }
                None => return Err(too_few(registered, self.nodes.count(), &faults).into()),
            }
        }
        // The first notice says that one node is free; with a majority of them, asking may help.
        // It is one of the nodes that held the key, so all are listened to: of a smaller part of
        // them, one alone may have held it.
        Ok(Freed::when(async move {
            let mut heard = 0;
            while heard < majority {
                select! {
                    // Notices first: they may be all that is needed.
                    biased;
                    Some(()) = notices.next() => heard += 1,
                    Some((_, registered)) = registering.next() => notices.push(match registered {
                        Ok(watch) => watch.woken().boxed(),
                        Err((_, node, channel)) => heard_again(node, channel).boxed(),
                    }),
                    else => return,
                }
            }
        }))
    }

    /// One millisecond: Redis' own.
    fn grain(&self) -> Duration {
        GRAIN
    }
}

/// Completes once `node` is listened to, after it was not: what it may have told meanwhile, counts
/// as told.
async fn heard_again(node: Arc<Node>, channel: String) {
    loop {
        sleep(node.timeout).await;
        if node.watch(channel.clone()).await.is_ok() {
            return;
        }
    }
}
