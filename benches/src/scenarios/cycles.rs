//! Measures how long it takes to obtain and release a key without contention.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use lease_core::store::{BootClock, Clock};
use lease_redis::RedisStore;
use lease_test_servers::proxy::Link;
use lease_test_servers::redis::{RedisServer, independent};
use tokio::time::timeout;

use super::contestants::{make_tables, on_one, on_quorum};
use crate::CALL_TIMEOUT;
use crate::cores::SeparateCores;
use crate::lock::Lock;
use crate::locks::ours::WithLocker;
use crate::locks::redlock::Redlock;
use crate::locks::same_commands::SameCommands;
use crate::race::{Race, Score, Spread};
use crate::report::{Better, Table};
use crate::server_process::DynamoDb;

pub(crate) async fn on_redis(rounds: usize) -> Vec<Table> {
    let (server, _apart) = SeparateCores::start(async { RedisServer::start() }).await;
    let mut locks = on_one(&server.url()).await;
    locks.insert(1, Arc::new(SameCommands::connect(&server.url()).await));
    locks.push(Arc::new(Redlock::new(&[server.url()])));
    per_second("redis", "one Redis", &locks, rounds, &[(1, 8_000), (64, 8_000)]).await
}

pub(crate) async fn with_metrics(rounds: usize) -> Vec<Table> {
    let (server, _apart) = SeparateCores::start(async { RedisServer::start() }).await;
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let locks: [Arc<dyn Lock>; 5] = [
        Arc::new(WithLocker::new(store.clone())),
        Arc::new(WithLocker::with_metrics(store.clone())),
        Arc::new(WithLocker::counting(store.clone())),
        Arc::new(WithLocker::dropping_events(store.clone())),
        // Its difference to the first contestant is the error of the measurement.
        Arc::new(WithLocker::again(store)),
    ];
    let mut race = Race::default();
    for lock in &locks {
        race.enter(lock.name(), move || {
            let lock = Arc::clone(lock);
            async move { Some(cycles_by_tasks(lock, 64, 200_000).await?.per_second()) }
        });
    }
    vec![Table {
        name: "metrics-64".to_owned(),
        title: "A free key is taken and freed on one Redis, by 64 tasks, with metrics".to_owned(),
        unit: "per second",
        better: Better::More,
        scores: race.run(rounds).await,
    }]
}

pub(crate) async fn on_a_quorum(rounds: usize) -> Vec<Table> {
    let (servers, _apart) = SeparateCores::start(async { independent(5) }).await;
    let urls: Vec<_> = servers.iter().map(RedisServer::url).collect();
    let sizes = [(1, 2_000), (64, 4_000), (256, 8_000)];
    per_second("quorum", "5 Redis", &on_quorum(&urls).await, rounds, &sizes).await
}

pub(crate) async fn on_dynamodb(rounds: usize) -> Vec<Table> {
    let (server, _apart) = SeparateCores::start(async { DynamoDb::start() }).await;
    make_tables(&server.client()).await;
    let locks = super::contestants::on_dynamodb(server.address()).await;
    per_second("dynamodb", "DynamoDB", &locks, rounds, &[(1, 1_000), (64, 1_000)]).await
}

pub(crate) async fn on_dynamodb_from_afar(rounds: usize) -> Vec<Table> {
    let server = DynamoDb::start();
    make_tables(&server.client()).await;
    let way = Link::with_latency(server.address(), FAR).await.unwrap();
    let locks = super::contestants::on_dynamodb(way.address()).await;
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

async fn per_second(
    name: &str,
    server: &str,
    locks: &[Arc<dyn Lock>],
    rounds: usize,
    sizes: &[(usize, usize)],
) -> Vec<Table> {
    let mut tables = Vec::new();
    for (tasks, cycles) in sizes.iter().copied() {
        let mut race = Race::default();
        for lock in locks {
            race.enter(lock.name(), move || {
                let lock = Arc::clone(lock);
                async move { Some(cycles_by_tasks(lock, tasks, cycles).await?.per_second()) }
            });
        }
        tables.push(Table {
            name: format!("{name}-{tasks}"),
            title: format!("A free key is taken and freed on {server}, by {}", count_of(tasks)),
            unit: "per second",
            better: Better::More,
            scores: race.run(rounds).await,
        });
    }
    tables
}

pub(super) fn count_of(tasks: usize) -> String {
    if tasks == 1 { "1 task".to_owned() } else { format!("{tasks} tasks") }
}

pub(super) struct Cycles {
    /// The duration of all cycles, in seconds.
    pub(super) took: f64,
    /// The times from each call to its grant, in seconds.
    pub(super) until_granted: Vec<f64>,
}

impl Cycles {
    pub(super) fn count(&self) -> f64 {
        f64::from(u32::try_from(self.until_granted.len()).unwrap())
    }

    pub(super) fn per_second(&self) -> f64 {
        self.count() / self.took
    }
}

/// Each task has its own key. Returns `None` if a call failed or took too long.
pub(super) async fn cycles_by_tasks(
    lock: Arc<dyn Lock>,
    tasks: usize,
    cycles: usize,
) -> Option<Cycles> {
    let clock = Arc::new(BootClock::new());
    let start = clock.now();
    let of_each = cycles / tasks;
    let all = (0..tasks).map(|task| {
        let (lock, clock) = (Arc::clone(&lock), Arc::clone(&clock));
        tokio::spawn(async move {
            let mut until_granted = Vec::with_capacity(of_each);
            for _ in 0..of_each {
                let called = clock.now();
                let held = lock.take(&format!("key-{task}")).await?;
                until_granted.push(clock.now().since(called).as_secs_f64());
                held.free().await;
            }
            Some(until_granted)
        })
    });
    let all = timeout(CALL_TIMEOUT, join_all(all)).await.ok()?;
    let took = clock.now().since(start).as_secs_f64();
    let of_tasks: Option<Vec<_>> = all.into_iter().map(|task| task.ok()?).collect();
    Some(Cycles { took, until_granted: of_tasks?.concat() })
}

#[derive(Clone, Copy)]
enum Missing {
    None,
    /// The server accepts connections, but sends no answers.
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
    let locks = on_quorum(&urls).await;
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

pub(super) const FAR: Duration = Duration::from_millis(5);

/// The result is in milliseconds.
async fn median_latency(lock: Arc<dyn Lock>, keys: Keys) -> Option<f64> {
    let clock = BootClock::new();
    let mut taken = Vec::new();
    let new_key = || format!("key-{}", NEXT.fetch_add(1, Ordering::Relaxed));
    let cycles = async {
        // An unfinished call of the last round may still hold its key, so each round uses another
        // key.
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
