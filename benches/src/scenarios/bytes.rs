//! Measures the memory that keys occupy in Redis servers after their release.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use lease_redis::{RedisQuorum, RedisStore};
use lease_test_servers::redis::{RedisCluster, RedisServer, independent};
use tokio::time::sleep;

use super::requests::table;
use crate::lock::Lock;
use crate::locks::bare_counter::Counter;
use crate::locks::bare_redis::Bare;
use crate::locks::ours::{Store, WithLocker};
use crate::locks::rslock::Rslock;
use crate::report::Table;

pub(crate) async fn after_release() -> Vec<Table> {
    vec![on_one().await, on_a_quorum().await, on_a_cluster().await]
}

async fn on_one() -> Table {
    let mut scores = Vec::new();
    for contestant in ["counter", "bare", "store", "locker", "rslock"] {
        // Each contestant has a new server. In a used server, the contestant's keys could occupy memory that
        // an earlier contestant had allocated, and this memory would not count.
        let servers = [RedisServer::start()];
        let url = servers[0].url();
        let lock: Arc<dyn Lock> = match contestant {
            "counter" => Arc::new(Counter::connect(&url).await),
            "bare" => Arc::new(Bare::connect(&[url]).await),
            "store" => Arc::new(Store(RedisStore::connect(&url).await.unwrap())),
            "locker" => Arc::new(WithLocker::new(RedisStore::connect(&url).await.unwrap())),
            _ => Arc::new(Rslock::new(&[url])),
        };
        scores.push((lock.name(), bytes_per_key(&*lock, &servers).await));
    }
    table("bytes-1", "Memory of one Redis per released key", "bytes", &scores)
}

async fn on_a_quorum() -> Table {
    let mut scores = Vec::new();
    for contestant in ["counter", "bare", "store", "locker", "rslock"] {
        let servers = independent(if contestant == "counter" { 1 } else { 5 });
        let urls: Vec<_> = servers.iter().map(RedisServer::url).collect();
        let quorum = async || {
            let builder = RedisQuorum::builder(urls.clone()).without_rejoin_delay();
            builder.connect().await.unwrap()
        };
        let lock: Arc<dyn Lock> = match contestant {
            "counter" => Arc::new(Counter::connect(&urls[0]).await),
            "bare" => Arc::new(Bare::connect(&urls).await),
            "store" => Arc::new(Store(quorum().await)),
            "locker" => Arc::new(WithLocker::new(quorum().await)),
            _ => Arc::new(Rslock::new(&urls)),
        };
        let of_all = bytes_per_key(&*lock, &servers).await;
        let of_each = of_all / f64::from(u32::try_from(servers.len()).unwrap());
        scores.push((lock.name(), of_each));
    }
    table("bytes-quorum", "Memory of each of 5 Redis per released key", "bytes", &scores)
}

async fn on_a_cluster() -> Table {
    let mut scores = Vec::new();
    for contestant in ["counter", "store", "locker"] {
        let cluster = RedisCluster::start(0);
        let urls = cluster.urls();
        let store = async || RedisStore::cluster(urls.clone()).connect().await.unwrap();
        let lock: Arc<dyn Lock> = match contestant {
            "counter" => Arc::new(Counter::connect_cluster(urls.clone()).await),
            "store" => Arc::new(Store(store().await)),
            _ => Arc::new(WithLocker::new(store().await)),
        };
        scores.push((lock.name(), bytes_per_key(&*lock, &cluster.nodes).await));
    }
    table("bytes-cluster", "Memory of a Redis Cluster per released key", "bytes", &scores)
}

async fn bytes_per_key(lock: &dyn Lock, servers: &[RedisServer]) -> f64 {
    // Opens connections and loads scripts before the first reading.
    use_once(lock, "warm", AT_ONCE).await;
    let before = used_memory(servers);
    use_once(lock, "key", KEYS).await;
    // The servers may still execute the last commands.
    sleep(Duration::from_secs(1)).await;
    // Buffers of connections may shrink, so the difference may be negative.
    (used_memory(servers) - before).max(0.0) / f64::from(KEYS)
}

async fn use_once(lock: &dyn Lock, prefix: &str, keys: u32) {
    let all = stream::iter(0..keys).for_each_concurrent(AT_ONCE as usize, |number| async move {
        lock.take(&format!("{prefix}-{number:06}")).await.unwrap().free().await;
    });
    all.await;
}

fn used_memory(servers: &[RedisServer]) -> f64 {
    let of_each = servers.iter().map(|server| {
        let information = server.command("INFO memory");
        let line = information.lines().find_map(|line| line.strip_prefix("used_memory:"));
        line.unwrap().trim().parse::<f64>().unwrap()
    });
    of_each.sum()
}

const KEYS: u32 = 100_000;

const AT_ONCE: u32 = 64;
