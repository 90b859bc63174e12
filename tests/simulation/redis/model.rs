//! The real stores, on simulated servers.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use lease_core::StoreError;
use lease_core::conformance::{ClientContext, Model, ModelContext};
use lease_core::store::LockStore;
use lease_redis::{Dialer, RedisQuorum, RedisQuorumBuilder, RedisStore};
use rand::rngs::StdRng;
use tokio::time::sleep;

use super::fleet::{Fleet, Plan};
use super::recorders::Recorder;
use super::recorders::grant_recorder::GrantRecorder;
use super::recorders::lock_recorder::LockRecorder;

pub(crate) struct Servers<S> {
    fleet: Fleet,
    connect: Box<dyn Fn(Vec<String>, Dialer, ClientContext) -> BoxFuture<'static, S>>,
}

impl Servers<RedisQuorum> {
    pub(crate) fn of_a_quorum(
        world: ModelContext,
        plan: Plan,
        set_up: fn(RedisQuorumBuilder) -> RedisQuorumBuilder,
    ) -> Self {
        let connect = move |urls, dialer, client: ClientContext| {
            let builder = RedisQuorum::builder::<String>(urls)
                .with_dialer(dialer)
                .with_clock(client.clock)
                .with_timeout(TIMEOUT);
            let builder = set_up(builder);
            until_connected(move || builder.clone().connect().boxed()).boxed()
        };
        let majority = plan.servers / 2 + 1;
        let recorder: Arc<dyn Recorder> =
            Arc::new(GrantRecorder::new(majority, world.ledger.clone()));
        Self { fleet: Fleet::new(world, plan, &recorder), connect: Box::new(connect) }
    }
}

impl Servers<RedisStore> {
    pub(crate) fn of_one(world: ModelContext, plan: Plan) -> Self {
        let connect = |urls: Vec<String>, dialer, _newcomer| {
            let builder = RedisStore::builder(urls.concat());
            let builder = builder.with_dialer(dialer).with_timeout(TIMEOUT);
            until_connected(move || builder.clone().connect().boxed()).boxed()
        };
        let recorder: Arc<dyn Recorder> = Arc::new(LockRecorder::new(world.ledger.clone()));
        Self { fleet: Fleet::new(world, plan, &recorder), connect: Box::new(connect) }
    }
}

impl<S: LockStore> Model for Servers<S> {
    type Store = S;

    fn connect(&mut self, client: ClientContext) -> BoxFuture<'static, S> {
        let dialer = self.fleet.dialer(client.faults.clone());
        (self.connect)(self.fleet.urls(), dialer, client)
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

async fn until_connected<S>(connect: impl Fn() -> BoxFuture<'static, Result<S, StoreError>>) -> S {
    loop {
        match connect().await {
            Ok(store) => return store,
            Err(_) => sleep(TIMEOUT).await,
        }
    }
}

const TIMEOUT: Duration = Duration::from_millis(100);
