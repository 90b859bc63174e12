//! Measures the time until a contender obtains the key of a dead holder.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use lease_core::store::{BootClock, Clock};
use lease_dynamodb::DynamoDbStore;
use lease_redis::RedisStore;
use lease_test_servers::dynamodb::client_of;
use lease_test_servers::proxy::Link;
use lease_test_servers::redis::RedisServer;
use tokio::time::{sleep, timeout};

use super::contestants::make_tables;
use super::cycles::FAR;
use crate::TTL;
use crate::lock::Lock;
use crate::locks::dynamodb_lease::DynamoDbLease;
use crate::locks::dynamodb_lock::DynamoDbLock;
use crate::locks::ours::WithLocker;
use crate::locks::redlock::Redlock;
use crate::locks::rslock::Rslock;
use crate::race::Score;
use crate::report::{Better, Table};
use crate::server_process::DynamoDb;

/// The second argument names the holder or the waiter.
type Make =
    fn(std::net::SocketAddr, &'static str) -> Pin<Box<dyn Future<Output = Arc<dyn Lock>> + Send>>;

const ON_REDIS: [Make; 3] = [
    |address, _| {
        Box::pin(async move {
            let store = RedisStore::connect(&format!("redis://{address}")).await.unwrap();
            Arc::new(WithLocker::new(store)) as Arc<dyn Lock>
        })
    },
    |address, _| {
        Box::pin(
            async move { Arc::new(Rslock::new(&[format!("redis://{address}")])) as Arc<dyn Lock> },
        )
    },
    |address, _| {
        Box::pin(
            async move { Arc::new(Redlock::new(&[format!("redis://{address}")])) as Arc<dyn Lock> },
        )
    },
];

const ON_DYNAMODB: [Make; 3] = [
    |address, _| {
        Box::pin(async move {
            let store = DynamoDbStore::new(client_of(address), "leases");
            Arc::new(WithLocker::new(store)) as Arc<dyn Lock>
        })
    },
    |address, _| {
        Box::pin(async move {
            Arc::new(DynamoDbLease::with_table(client_of(address)).await) as Arc<dyn Lock>
        })
    },
    |address, owner| {
        Box::pin(async move {
            Arc::new(DynamoDbLock::new(format!("http://{address}"), owner)) as Arc<dyn Lock>
        })
    },
];

/// Runs all contestants at the same time, since they only wait.
pub(crate) async fn of_a_holder() -> Vec<Table> {
    let redis = RedisServer::start();
    let dynamodb = DynamoDb::start();
    make_tables(&dynamodb.client()).await;
    let far = Link::with_latency(dynamodb.address(), FAR).await.unwrap();
    let servers = [
        ("redis", "Redis", redis.address(), ON_REDIS),
        ("dynamodb", "DynamoDB", dynamodb.address(), ON_DYNAMODB),
        ("dynamodb-far", "DynamoDB at 5 ms", far.address(), ON_DYNAMODB),
    ];
    let whens = [
        ("watched", "by a waiter", Duration::ZERO),
        ("unwatched", "by a contender that arrives 15 s later", Duration::from_secs(15)),
    ];
    let tables = servers.into_iter().flat_map(|server| whens.map(|when| (server, when)));
    let tables =
        tables.map(|((server, place, address, contestants), (name, when, dead_for))| async move {
            let all = contestants.map(|make| async move {
                let label = make(address, "label").await.name();
                let key = format!("{label}-{server}-{name}");
                (label, taken_over(make, address, key, dead_for).await)
            });
            Table {
                name: format!("crash-{server}-{name}"),
                title: format!("The key of a dead holder is obtained on {place} {when}, ttl 10 s"),
                unit: "s",
                better: Better::Less,
                scores: relative_to_first(&join_all(all).await),
            }
        });
    join_all(tables).await
}

fn relative_to_first(took: &[(&'static str, Option<f64>)]) -> Vec<Score> {
    let first = [took.first().and_then(|(_, first)| *first)];
    took.iter().map(|(name, seconds)| Score::new(name, &[*seconds], &first)).collect()
}

/// The result is in seconds.
async fn taken_over(
    make: Make,
    address: std::net::SocketAddr,
    key: String,
    dead_for: Duration,
) -> Option<f64> {
    let clock = BootClock::new();
    let held = key.clone();
    // The end of the runtime lets the holder send no release and no further heartbeat.
    let died = std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let lock = make(address, "holder").await;
            std::mem::forget(lock.take(&held).await.unwrap());
            std::mem::forget(lock);
        });
        runtime.shutdown_background();
    });
    tokio::task::spawn_blocking(move || died.join().unwrap()).await.unwrap();
    sleep(dead_for).await;
    let start = clock.now();
    let lock = make(address, "waiter").await;
    let waited = timeout(TTL * 9, async {
        loop {
            if let Some(held) = lock.take(&key).await {
                return held;
            }
        }
    });
    let held = waited.await.ok()?;
    let took = clock.now().since(start).as_secs_f64();
    held.free().await;
    Some(took)
}
