//! Leases on one logical server.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use lease_core::{
    Beat, Claim, Freed, Grant, Heartbeat, Holder, LeaseKey, LockStore, Obtained, StoreError,
    StoreErrorKind,
};

use crate::config::RedisStoreBuilder;
use crate::connection::Role;
use crate::error::Fault;
use crate::lock::{Round, Standing, Vote};
use crate::node::Node;
use crate::script::Call;

/// Keeps leases in Redis, on one logical server: standalone, behind Sentinel, or a Cluster.
///
/// Clones share connections. Each call is one round trip; it fails after
/// [a time-out](RedisStoreBuilder::with_timeout), and is safe to repeat. What a server that
/// restarts or fails over forgets is in the [crate's table](crate#what-happens-when).
#[derive(Debug, Clone)]
pub struct RedisStore {
    pub(crate) node: Arc<Node>,
    pub(crate) replicas: usize,
}

impl RedisStore {
    /// Connects to the server at `url`: `redis://user:password@host:port/database`, or
    /// `rediss://` for TLS (feature `tls`).
    ///
    /// # Errors
    ///
    /// Where the server is not there, refuses the user, or is set up such that it would lose
    /// leases; the text says what to do.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        Self::builder(url).connect().await
    }

    /// Sets up a store on the server at `url`.
    pub fn builder(url: impl Into<String>) -> RedisStoreBuilder {
        RedisStoreBuilder::standalone(url.into())
    }

    /// Sets up a store on whichever server the Sentinels at `urls` name as the master of
    /// `master`.
    ///
    /// Credentials and the database of the first URL are used for the master, too; where it has
    /// other users, [`with_master_login`](RedisStoreBuilder::with_master_login) names one.
    pub fn sentinel<U: Into<String>>(
        urls: impl IntoIterator<Item = U>,
        master: impl Into<String>,
    ) -> RedisStoreBuilder {
        let urls = urls.into_iter().map(Into::into).collect();
        RedisStoreBuilder::sentinel(urls, master.into())
    }

    /// Sets up a store on the Cluster that the nodes at `urls` belong to; some of them suffice.
    pub fn cluster<U: Into<String>>(urls: impl IntoIterator<Item = U>) -> RedisStoreBuilder {
        RedisStoreBuilder::cluster(urls.into_iter().map(Into::into).collect())
    }

    /// Runs a script that grants, on as many replicas as was asked for.
    async fn vote(&self, claim: &Claim, call: &Call) -> Result<Vote, Fault> {
        self.node.check(claim.ttl)?;
        if self.replicas == 0 {
            let vote = self.node.vote_alone(call, &claim.key).await;
            if vote.as_ref().is_err_and(|fault| fault.kind == StoreErrorKind::Corrupt) {
                // What cannot be read cannot be used: it is not to keep the key for a ttl.
                drop(self.node.withdraw(claim, Round::NONE.number).await);
            }
            return vote;
        }
        let (answer, copies) = self.node.call_and_wait(call, self.replicas).await?;
        let vote = self.node.read_vote(call.name(), &answer)?;
        if let Vote::Granted(token, ..) = vote
            && copies < self.replicas
        {
            let name = &self.node.name;
            // Given back, since nobody will hear of it. If this fails, the ttl does it.
            let release = self.node.release_call(&claim.granted(token), None, Standing::Alone);
            drop(self.node.call(&release).await);
            return Err(Fault::unavailable(format!(
                "{name}: {copies} replicas have the grant, not {}",
                self.replicas
            )));
        }
        Ok(vote)
    }
}

#[async_trait]
impl LockStore for RedisStore {
    async fn obtain(&self, claim: &Claim) -> Result<Obtained, StoreError> {
        let call = self.node.obtain_call(claim, Round::NONE);
        match self.vote(claim, &call).await? {
            Vote::Granted(token, attributes, _) => {
                Ok(Obtained::Granted(claim.granted(token), attributes))
            }
            Vote::Held(rival) => Ok(Obtained::Held(rival.holder)),
            Vote::Gone | Vote::Restarted { .. } => Err(self.node.unreadable(call.name()).into()),
        }
    }

    async fn heartbeat(&self, grant: &Grant, beat: Beat) -> Result<Heartbeat, StoreError> {
        let beats = [(grant.clone(), beat)];
        let pulse = self.node.heartbeat(&beats).await.into_iter().next();
        Ok(pulse.ok_or_else(|| self.node.unreadable("heartbeat"))??.into())
    }

    async fn release(&self, grant: &Grant, reserved: Option<Duration>) -> Result<(), StoreError> {
        let call = self.node.release_call(grant, reserved, Standing::Alone);
        Ok(self.node.says_yes(&call).await.map(drop)?)
    }

    async fn adopt(&self, grant: &Grant, claim: &Claim) -> Result<Obtained, StoreError> {
        let call = self.node.adopt_call(grant, claim, Round::NONE);
        match self.vote(claim, &call).await? {
            Vote::Granted(token, attributes, _) => {
                Ok(Obtained::Granted(claim.granted(token), attributes))
            }
            Vote::Held(rival) => Ok(Obtained::Held(rival.holder)),
            Vote::Gone => Ok(Obtained::Held(gone(grant))),
            Vote::Restarted { .. } => Err(self.node.unreadable(call.name()).into()),
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
            let pulses = self.node.heartbeat(beats).await;
            let answers = pulses.into_iter().enumerate().map(move |(place, pulse)| {
                (number * batch + place, pulse.map(Heartbeat::from).map_err(StoreError::from))
            });
            stream::iter(answers)
        });
        stream::iter(batches).buffer_unordered(BATCHES_AT_ONCE).flatten().boxed()
    }

    async fn watch(&self, key: &LeaseKey) -> Result<Freed, StoreError> {
        let watch = self.node.watch(self.node.keys.channel(key)).await?;
        Ok(Freed::when(watch.woken()))
    }

    /// One millisecond: Redis' own.
    fn grain(&self) -> Duration {
        GRAIN
    }
}

/// What is told of a grant that nobody has any more.
pub(crate) fn gone(grant: &Grant) -> Holder {
    Holder::new(grant.lessee.clone(), grant.token, Some(Duration::ZERO))
}

pub(crate) const GRAIN: Duration = Duration::from_millis(1);

/// Heartbeats in one script: few enough that it keeps the server from others for less than a
/// millisecond.
pub(crate) const BATCH: usize = 64;

/// As many as a locker ever has on their way.
pub(crate) const BATCHES_AT_ONCE: usize = 64;
