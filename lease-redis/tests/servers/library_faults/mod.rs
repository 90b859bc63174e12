//! The faults of other libraries, one test each. If two libraries have the same fault, its test is in the
//! file of the library that the test's comment names first.

mod distributed_lock;
mod go_redsync;
mod node_redlock;
mod redisson;
mod rslock;

use std::sync::Arc;
use std::time::Duration;

use lease_core::store::LockStore;
use lease_redis::{RedisQuorum, RedisStore};
use lease_test_servers::redis::RedisServer;

use crate::setting::{flush, servers, urls};

/// The time-out is longer than pauses of a busy machine.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A store on the first server, and a quorum of all three.
struct Both {
    servers: [RedisServer; 3],
    single: Arc<dyn LockStore>,
    several: Arc<dyn LockStore>,
}

impl Both {
    async fn start() -> Option<Self> {
        let servers = servers()?;
        let single = RedisStore::builder(servers[0].url()).with_timeout(TIMEOUT);
        let several = RedisQuorum::builder(urls(&servers)).without_rejoin_delay();
        Some(Self {
            single: Arc::new(single.connect().await.unwrap()),
            several: Arc::new(several.with_timeout(TIMEOUT).connect().await.unwrap()),
            servers,
        })
    }

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
