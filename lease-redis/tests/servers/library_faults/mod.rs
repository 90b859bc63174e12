//! The faults of other libraries, one test each, by the library's id: RS go-redsync, RSL rslock,
//! RSN redisson, NRL node-redlock, RLN `RedLock.net`, R3 distributed-lock. One that two libraries
//! have in common is in the first one's file. Those that are rows of the README's table, too, are
//! beside this folder: `minority.rs`, `partitions.rs`, `requests.rs`, `promotion.rs`, `pauses.rs`;
//! those of a quorum alone in `tests/quorum.rs`.

mod distributed_lock;
mod go_redsync;
mod node_redlock;
mod redisson;
mod rslock;

use std::sync::Arc;
use std::time::Duration;

use lease_core::LockStore;
use lease_redis::{RedisQuorum, RedisStore};
use lease_tests::redis::RedisServer;

use crate::setting::{flush, servers, urls};

/// Of every store: tests wait for it, and machines may stand still for a while.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Three servers: a store on the first, and a quorum of all. Each test tries both, one after the
/// other.
struct Both {
    servers: [RedisServer; 3],
    single: Arc<dyn LockStore>,
    several: Arc<dyn LockStore>,
}

impl Both {
    async fn start() -> Option<Self> {
        let servers = servers()?;
        let single = RedisStore::builder(servers[0].url()).with_timeout(TIMEOUT);
        let several = RedisQuorum::builder(urls(&servers)).without_quarantine();
        Some(Self {
            single: Arc::new(single.connect().await.unwrap()),
            several: Arc::new(several.with_timeout(TIMEOUT).connect().await.unwrap()),
            servers,
        })
    }

    /// Each store, on servers that know nothing.
    fn each(&self) -> impl Iterator<Item = Arc<dyn LockStore>> {
        [&self.single, &self.several].into_iter().map(|store| {
            flush(&self.servers);
            Arc::clone(store)
        })
    }

    fn hang(&self) {
        self.servers[..2].iter().for_each(RedisServer::hang);
    }

    fn go_on(&self) {
        self.servers[..2].iter().for_each(RedisServer::go_on);
    }
}
