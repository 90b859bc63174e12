//! Obtains and releases a key without contention.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use futures_util::future::join_all;
use lease_core::store::{BootClock, Clock};
use lease_dynamodb::DynamoDbStore;
use lease_redis::{RedisQuorum, RedisStore};
use lease_test_servers::dynamodb::client_of;
use lease_test_servers::proxy::Link;
use lease_test_servers::redis::{RedisServer, independent};
use tokio::time::timeout;

use crate::CALL_TIMEOUT;
use crate::cores::SeparateCores;
use crate::lock::Lock;
use crate::locks::bare_dynamodb::BareDynamoDb;
use crate::locks::bare_redis::Bare;
use crate::locks::dynamodb_lease::DynamoDbLease;
use crate::locks::dynamodb_lock::DynamoDbLock;
use crate::locks::ours::{Store, WithLocker};
use crate::locks::redlock::Redlock;
use crate::locks::rslock::Rslock;
use crate::locks::same_scripts::SameScripts;
use crate::race::{Race, Score, Spread};
use crate::report::{Better, Table};
use crate::server_process::DynamoDb;

pub(crate) async fn on_redis(rounds: usize) -> Vec<Table> {
    let (server, _apart) = SeparateCores::start(async { RedisServer::start() }).await;
    let urls = [server.url()];
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let locks: Vec<Arc<dyn Lock>> = vec![
        Arc::new(Bare::connect(&urls).await),
        Arc::new(SameScripts::connect(&server.url()).await),
        Arc::new(Store(store.clone())),
        Arc::new(WithLocker::new(store)),
        Arc::new(Rslock::new(&urls)),
        Arc::new(Redlock::new(&urls)),
    ];
    per_second("redis", "one Redis", &locks, rounds, 8_000).await
}

pub(crate) async fn on_a_quorum(rounds: usize) -> Vec<Table> {
    let (servers, _apart) = SeparateCores::start(async { independent(5) }).await;
    let urls: Vec<_> = servers.iter().map(RedisServer::url).collect();
    per_second("quorum", "5 Redis", &quorums(&urls).await, rounds, 2_000).await
}

pub(crate) async fn on_dynamodb(rounds: usize) -> Vec<Table> {
    let (server, _apart) = SeparateCores::start(async { DynamoDb::start() }).await;
    let locks = on_table(&server.client(), server.address()).await;
    per_second("dynamodb", "DynamoDB", &locks, rounds, 1_000).await
}

pub(crate) async fn on_dynamodb_from_afar(rounds: usize) -> Vec<Table> {
    let server = DynamoDb::start();
    let way = Link::with_latency(server.address(), FAR).await.unwrap();
    let locks = on_table(&server.client(), way.address()).await;
    let mut race = Race::default();
    for lock in &locks {
        race.enter(lock.name(), move || median_latency(Arc::clone(lock), Keys::Used));
    }
    vec![Table {
        name: "dynamodb-far".to_owned(),
        title: "A free key is taken on DynamoDB at 5 ms".to_owned(),
        unit: "ms, median",
        better: Better::Less,
        scores: race.run(rounds).await,
    }]
}

/// Creates all locks on the server at `address`. Creates their tables with `client`.
async fn on_table(client: &Client, address: SocketAddr) -> Vec<Arc<dyn Lock>> {
    DynamoDbStore::new(client.clone(), "leases").ensure_table().await.unwrap();
    BareDynamoDb::make_table(client).await;
    DynamoDbLease::make_table(client).await;
    DynamoDbLock::make_table(client).await;
    let client = client_of(address);
    let store = DynamoDbStore::new(client.clone(), "leases");
    vec![
        Arc::new(BareDynamoDb::new(client.clone())),
        Arc::new(Store(store.clone())),
        Arc::new(WithLocker::new(store)),
        Arc::new(DynamoDbLease::with_table(client).await),
        Arc::new(DynamoDbLock::new(format!("http://{address}"), "bench")),
    ]
}

async fn quorums(urls: &[String]) -> Vec<Arc<dyn Lock>> {
    let quorum =
        RedisQuorum::builder(urls.to_vec()).without_rejoin_delay().connect().await.unwrap();
    vec![
        Arc::new(Bare::connect(urls).await),
        Arc::new(Store(quorum.clone())),
        Arc::new(WithLocker::new(quorum)),
        Arc::new(Rslock::new(urls)),
        Arc::new(Redlock::new(urls)),
    ]
}

async fn per_second(
    name: &str,
    server: &str,
    locks: &[Arc<dyn Lock>],
    rounds: usize,
    cycles: usize,
) -> Vec<Table> {
    let mut tables = Vec::new();
    for tasks in [1, 64] {
        let mut race = Race::default();
        for lock in locks {
            race.enter(lock.name(), move || cycles_per_second(Arc::clone(lock), tasks, cycles));
        }
        let of = if tasks == 1 { "1 task" } else { "64 tasks" };
        tables.push(Table {
            name: format!("{name}-{tasks}"),
            title: format!("A free key is taken and freed on {server}, by {of}"),
            unit: "per second",
            better: Better::More,
            scores: race.run(rounds).await,
        });
    }
    tables
}

async fn cycles_per_second(lock: Arc<dyn Lock>, tasks: usize, cycles: usize) -> Option<f64> {
    let clock = BootClock::new();
    let start = clock.now();
    let of_each = cycles / tasks;
    let all = (0..tasks).map(|task| {
        let lock = Arc::clone(&lock);
        tokio::spawn(async move {
            for _ in 0..of_each {
                lock.take(&format!("key-{task}")).await?.free().await;
            }
            Some(())
        })
    });
    let all = timeout(CALL_TIMEOUT, join_all(all)).await.ok()?;
    let done = all.into_iter().filter(|done| matches!(done, Ok(Some(())))).count();
    let count = u32::try_from(of_each * tasks).unwrap();
    let took = clock.now().since(start).as_secs_f64();
    (done == tasks).then(|| f64::from(count) / took)
}

/// The state of one of five servers.
#[derive(Clone, Copy)]
enum Missing {
    None,
    /// The server accepts connections, and sends no answers.
    Hung,
    /// The server is dead, and the proxy in front of it closes connections.
    Dead,
}

pub(crate) async fn with_one_missing(rounds: usize) -> Vec<Table> {
    let mut tables = Vec::new();
    for missing in [Missing::None, Missing::Hung, Missing::Dead] {
        let (name, state) = match missing {
            Missing::None => ("all", "all up"),
            Missing::Hung => ("hung", "one of them hung"),
            Missing::Dead => ("dead", "one of them dead"),
        };
        tables.push(Table {
            name: format!("missing-{name}"),
            title: format!("A free key is taken on 5 Redis at 5 ms, {state}"),
            unit: "ms, median",
            better: Better::Less,
            scores: latencies(missing, Keys::Used, rounds).await,
        });
    }
    tables.push(Table {
        name: "missing-new".to_owned(),
        title: "A new key is taken on 5 Redis at 5 ms".to_owned(),
        unit: "ms, median",
        better: Better::Less,
        scores: latencies(Missing::None, Keys::New, rounds).await,
    });
    tables
}

/// Whether the key existed before.
#[derive(Clone, Copy)]
enum Keys {
    New,
    Used,
}

async fn latencies(missing: Missing, keys: Keys, rounds: usize) -> Vec<Score> {
    let mut servers = independent(5);
    let mut ways = Vec::new();
    for server in &servers {
        ways.push(Link::with_latency(server.address(), FAR).await.unwrap());
    }
    let urls: Vec<_> = ways.iter().map(|way| format!("redis://{}", way.address())).collect();
    let locks = quorums(&urls).await;
    // Opens all connections.
    for lock in &locks {
        if let Some(held) = lock.take("warm").await {
            held.free().await;
        }
    }
    match missing {
        Missing::None => (),
        Missing::Hung => servers[0].hang(),
        Missing::Dead => servers[0].kill(),
    }
    let mut race = Race::default();
    for lock in &locks {
        race.enter(lock.name(), move || median_latency(Arc::clone(lock), keys));
    }
    let scores = race.run(rounds).await;
    servers[0].go_on();
    scores
}

static NEXT: AtomicU64 = AtomicU64::new(0);

/// The round trip between machines.
const FAR: Duration = Duration::from_millis(5);

/// Returns the median time to take a key, in milliseconds.
async fn median_latency(lock: Arc<dyn Lock>, keys: Keys) -> Option<f64> {
    let clock = BootClock::new();
    let mut taken = Vec::new();
    let new_key = || format!("key-{}", NEXT.fetch_add(1, Ordering::Relaxed));
    let cycles = async {
        // Another key in each round, since an unfinished call may still hold the last key.
        let mut key = new_key();
        lock.take(&key).await?.free().await;
        for _ in 0..10 {
            if matches!(keys, Keys::New) {
                key = new_key();
            }
            let start = clock.now();
            let held = lock.take(&key).await?;
            taken.push(clock.now().since(start).as_secs_f64() * 1e3);
            held.free().await;
        }
        Some(())
    };
    timeout(CALL_TIMEOUT, cycles).await.ok()??;
    Some(Spread::of(&taken)?.median)
}
