//! The real stores, over servers of a model.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use lease_core::conformance::{Model, Newcomer, World};
use lease_redis::{RedisQuorum, RedisQuorumBuilder, RedisStore};
use rand::rngs::StdRng;
use tokio::time::sleep;

use super::fleet::{Fleet, Plan};

/// Independent servers, and a quorum of them.
pub(crate) struct QuorumModel {
    fleet: Fleet,
    set_up: fn(RedisQuorumBuilder) -> RedisQuorumBuilder,
}

/// One server.
pub(crate) struct OneServer {
    fleet: Fleet,
}

impl QuorumModel {
    pub(crate) fn new(
        world: World,
        plan: Plan,
        set_up: fn(RedisQuorumBuilder) -> RedisQuorumBuilder,
    ) -> Self {
        Self { fleet: Fleet::new(world, plan), set_up }
    }
}

impl OneServer {
    pub(crate) fn new(world: World, plan: Plan) -> Self {
        Self { fleet: Fleet::new(world, plan) }
    }
}

impl Model for QuorumModel {
    type Store = RedisQuorum;

    fn connect(&mut self, newcomer: Newcomer) -> BoxFuture<'static, RedisQuorum> {
        let builder = RedisQuorum::builder(self.fleet.urls())
            .with_dialer(self.fleet.dialer(newcomer.weather))
            .with_clock(newcomer.clock)
            .with_timeout(TIMEOUT);
        let builder = (self.set_up)(builder);
        async move {
            loop {
                match builder.clone().connect().await {
                    Ok(quorum) => return quorum,
                    Err(_) => sleep(TIMEOUT).await,
                }
            }
        }
        .boxed()
    }

    fn strike(&mut self, random: &mut StdRng) {
        self.fleet.strike(random);
    }

    fn heal(&mut self) {
        self.fleet.heal();
    }

    fn step(&mut self) {
        self.fleet.step();
    }
}

impl Model for OneServer {
    type Store = RedisStore;

    fn connect(&mut self, newcomer: Newcomer) -> BoxFuture<'static, RedisStore> {
        let builder = RedisStore::builder("redis://0:6379")
            .with_dialer(self.fleet.dialer(newcomer.weather))
            .with_timeout(TIMEOUT);
        async move {
            loop {
                match builder.clone().connect().await {
                    Ok(store) => return store,
                    Err(_) => sleep(TIMEOUT).await,
                }
            }
        }
        .boxed()
    }

    fn strike(&mut self, random: &mut StdRng) {
        self.fleet.strike(random);
    }

    fn heal(&mut self) {
        self.fleet.heal();
    }

    fn step(&mut self) {
        self.fleet.step();
    }
}

/// A third of the ttl of a trial.
const TIMEOUT: Duration = Duration::from_millis(100);
