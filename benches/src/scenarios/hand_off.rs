//! Measures how fast a released key passes to one of the waiters.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use lease_core::store::{BootClock, Clock};
use lease_dynamodb::DynamoDbStore;
use lease_redis::RedisStore;
use lease_test_servers::dynamodb::client_of;
use lease_test_servers::proxy::Link;
use lease_test_servers::redis::RedisServer;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::contestants::make_tables;
use super::cycles::FAR;
use super::requests::requests;
use crate::CALL_TIMEOUT;
use crate::lock::Lock;
use crate::locks::bare_dynamodb::{BareDynamoDb, Polling};
use crate::locks::bare_redis::BlockingList;
use crate::locks::dynamodb_lease::DynamoDbLease;
use crate::locks::dynamodb_lock::DynamoDbLock;
use crate::locks::ours::WithLocker;
use crate::locks::redlock::Redlock;
use crate::locks::rslock::Rslock;
use crate::race::{Race, Score, Spread};
use crate::report::{Better, Table};
use crate::server_process::DynamoDb;

pub(crate) async fn between_waiters(rounds: usize) -> Vec<Table> {
    let mut tables = Vec::new();
    for waiters in [8, 64] {
        tables.extend(on_redis(waiters, ROUND_TRIP, rounds).await);
    }
    for round_trip in [Duration::ZERO, FAR] {
        tables.push(on_dynamodb(round_trip, rounds).await);
    }
    tables
}

pub(crate) async fn between_near_waiters(rounds: usize) -> Vec<Table> {
    on_redis(8, Duration::ZERO, rounds).await.into()
}

/// Each lock has its own connections, as in another process.
type Make = fn(String) -> Pin<Box<dyn Future<Output = Arc<dyn Lock>>>>;

const ON_REDIS: [Make; 4] = [
    |url| Box::pin(async move { Arc::new(BlockingList::connect(&url).await) as Arc<dyn Lock> }),
    |url| {
        Box::pin(async move {
            Arc::new(WithLocker::new(RedisStore::connect(&url).await.unwrap())) as Arc<dyn Lock>
        })
    },
    |url| Box::pin(async move { Arc::new(Rslock::new(&[url])) as Arc<dyn Lock> }),
    |url| Box::pin(async move { Arc::new(Redlock::new(&[url])) as Arc<dyn Lock> }),
];

async fn on_redis(waiters: usize, round_trip: Duration, rounds: usize) -> [Table; 2] {
    let server = RedisServer::start();
    let way = Link::with_latency(server.address(), round_trip).await.unwrap();
    let url = if round_trip.is_zero() { server.url() } else { way.url() };
    let mut race = Race::default();
    let mut request_scores: Vec<Score> = Vec::new();
    let (counts, mut received_counts) = mpsc::unbounded_channel();
    let server = Arc::new(server);
    for make in ON_REDIS {
        let name = make(url.clone()).await.name();
        request_scores.push(Score {
            name: name.to_owned(),
            values: Vec::new(),
            ratios: Vec::new(),
            failed: 0,
        });
        let (counts, server, url, mut round) =
            (counts.clone(), Arc::clone(&server), url.clone(), 0);
        race.enter(name, move || {
            round += 1;
            let (server, counts, url) = (Arc::clone(&server), counts.clone(), url.clone());
            async move {
                // Some waiters of the last round still use the old locks.
                let mut locks = Vec::new();
                for _ in 0..waiters {
                    locks.push(make(url.clone()).await);
                }
                let before = requests(&server);
                let median = median_gap(&locks, &format!("{name}-{round}")).await;
                let each = (requests(&server) - before) / f64::from(HAND_OFFS);
                counts.send((name, median.map(|_| each))).unwrap();
                median
            }
        });
    }
    let scores = race.run(rounds).await;
    drop(counts);
    while let Some((name, each)) = received_counts.recv().await {
        let score = request_scores.iter_mut().find(|it| it.name == name).unwrap();
        score.values.extend(each);
    }
    let floor = Spread::of(&request_scores[0].values).map_or(1.0, |spread| spread.median);
    for score in &mut request_scores {
        score.ratios = score.values.iter().map(|value| value / floor).collect();
    }
    let (name, place) = if round_trip.is_zero() {
        (format!("hand-off-{waiters}-near"), "Redis".to_owned())
    } else {
        let place = format!("Redis at {} ms", round_trip.as_millis());
        (format!("hand-off-{waiters}"), place)
    };
    let title = format!("{waiters} waiters on {place}");
    [
        Table {
            name: name.clone(),
            title: format!("{title}: from a release to the next grant"),
            unit: "ms, median",
            better: Better::Less,
            scores,
        },
        Table {
            name: format!("{name}-requests"),
            title: format!("{title}: commands per hand-off"),
            unit: "requests",
            better: Better::Less,
            scores: request_scores,
        },
    ]
}

async fn on_dynamodb(round_trip: Duration, rounds: usize) -> Table {
    let server = DynamoDb::start();
    make_tables(&server.client()).await;
    let way = Link::with_latency(server.address(), round_trip).await.unwrap();
    let address = if round_trip.is_zero() { server.address() } else { way.address() };
    let client = client_of(address);
    let store = DynamoDbStore::new(client.clone(), "leases");
    let endpoint = format!("http://{address}");
    let bare = Arc::new(Polling(BareDynamoDb::new(client)));
    let mut contestants: Vec<Vec<Arc<dyn Lock>>> = vec![vec![bare; 8]];
    let (mut ours, mut leases, mut locks) = (Vec::new(), Vec::new(), Vec::new());
    for waiter in 0..8 {
        ours.push(Arc::new(WithLocker::new(store.clone())) as Arc<dyn Lock>);
        leases.push(Arc::new(DynamoDbLease::with_table(client_of(address)).await) as Arc<dyn Lock>);
        let owner = format!("waiter-{waiter}");
        locks.push(Arc::new(DynamoDbLock::new(endpoint.clone(), &owner)) as Arc<dyn Lock>);
    }
    contestants.extend([ours, leases, locks]);
    let mut race = Race::default();
    for locks in contestants {
        let (name, mut round) = (locks[0].name(), 0);
        race.enter(name, move || {
            round += 1;
            let locks = locks.clone();
            async move { median_gap(&locks, &format!("{name}-{round}")).await }
        });
    }
    let (name, place) = if round_trip.is_zero() {
        ("hand-off-dynamodb", "DynamoDB")
    } else {
        ("hand-off-dynamodb-far", "DynamoDB at 5 ms")
    };
    Table {
        name: name.to_owned(),
        title: format!("8 waiters on {place}: from a release to the next grant"),
        unit: "ms, median",
        better: Better::Less,
        scores: race.run(rounds.min(3)).await,
    }
}

/// The median time from a release to the next grant, in milliseconds.
async fn median_gap(locks: &[Arc<dyn Lock>], key: &str) -> Option<f64> {
    let clock = Arc::new(BootClock::new());
    let (held, mut turns) = mpsc::unbounded_channel();
    let mut waiters = JoinSet::new();
    for lock in locks {
        let (lock, clock, held) = (Arc::clone(lock), Arc::clone(&clock), held.clone());
        let key = key.to_owned();
        waiters.spawn(async move {
            loop {
                let Some(taken) = lock.take(&key).await else { continue };
                let since = clock.now();
                // All other contenders begin to wait again during this time.
                sleep(HELD_FOR).await;
                let until = clock.now();
                if held.send((since, until)).is_err() {
                    return;
                }
                taken.free().await;
            }
        });
    }
    let gaps = async {
        let mut gaps = Vec::new();
        let mut last = turns.recv().await?.1;
        for _ in 0..HAND_OFFS {
            let (since, until) = turns.recv().await?;
            gaps.push(since.since(last).as_secs_f64() * 1e3);
            last = until;
        }
        Some(Spread::of(&gaps)?.median)
    };
    timeout(CALL_TIMEOUT * 4, gaps).await.ok()?
}

const ROUND_TRIP: Duration = Duration::from_millis(10);

const HELD_FOR: Duration = Duration::from_millis(100);

const HAND_OFFS: u32 = 20;
