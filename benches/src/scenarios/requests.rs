//! Counts the requests per operation.

use std::sync::Arc;

use lease_dynamodb::DynamoDbStore;
use lease_redis::RedisStore;
use lease_test_servers::dynamodb::{Count, Server};
use lease_test_servers::redis::RedisServer;

use crate::lock::Lock;
use crate::locks::bare_dynamodb::BareDynamoDb;
use crate::locks::bare_redis::Bare;
use crate::locks::dynamodb_lease::DynamoDbLease;
use crate::locks::ours::WithLocker;
use crate::locks::redlock::Redlock;
use crate::locks::rslock::Rslock;
use crate::race::Score;
use crate::report::{Better, Table};

pub(crate) async fn of_each() -> Vec<Table> {
    vec![on_redis().await, on_dynamodb().await]
}

/// The scripts themselves call none of the counted commands.
pub(crate) fn requests(server: &RedisServer) -> f64 {
    const SENT: [&str; 9] = [
        "set",
        "eval",
        "evalsha",
        "blpop",
        "rpush",
        "subscribe",
        "unsubscribe",
        "ssubscribe",
        "sunsubscribe",
    ];
    let stats = server.command("INFO commandstats");
    let counts = stats.lines().filter_map(|line| {
        let (name, figures) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        let count = figures.split(',').next()?.parse::<f64>().ok()?;
        SENT.contains(&name).then_some(count)
    });
    counts.sum()
}

async fn on_redis() -> Table {
    let server = RedisServer::start();
    let urls = [server.url()];
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let locks: Vec<Arc<dyn Lock>> = vec![
        Arc::new(Bare::connect(&urls).await),
        Arc::new(WithLocker::new(store)),
        Arc::new(Rslock::new(&urls)),
        Arc::new(Redlock::new(&urls)),
    ];
    let mut scores = Vec::new();
    for lock in locks {
        lock.take("warm").await.unwrap().free().await;
        let before = requests(&server);
        for _ in 0..CYCLES {
            lock.take("key").await.unwrap().free().await;
        }
        let each = (requests(&server) - before) / f64::from(CYCLES);
        scores.push((lock.name(), each));
    }
    table("requests-redis", "Requests to Redis per obtain and release", "requests", &scores)
}

async fn on_dynamodb() -> Table {
    let server = Server::dynoxide().await;
    let (count, config) = Count::of(server.config());
    let client = aws_sdk_dynamodb::Client::from_conf(config.build());
    let store = DynamoDbStore::new(client.clone(), "leases");
    store.ensure_table().await.unwrap();
    BareDynamoDb::make_table(&client).await;
    DynamoDbLease::make_table(&client).await;
    let locks: Vec<Arc<dyn Lock>> = vec![
        Arc::new(BareDynamoDb::new(client.clone())),
        Arc::new(WithLocker::new(store)),
        Arc::new(DynamoDbLease::with_table(client).await),
    ];
    let mut scores = Vec::new();
    for lock in locks {
        count.take();
        for _ in 0..CYCLES {
            lock.take("key").await.unwrap().free().await;
        }
        let requests = u32::try_from(count.take()).unwrap();
        scores.push((lock.name(), f64::from(requests) / f64::from(CYCLES)));
    }
    table("requests-dynamodb", "Requests to DynamoDB per obtain and release", "requests", &scores)
}

pub(super) fn table(name: &str, title: &str, unit: &'static str, counted: &[(&str, f64)]) -> Table {
    let first = [counted.first().map(|(_, first)| *first)];
    let scores = counted.iter().map(|(name, each)| Score::new(name, &[Some(*each)], &first));
    Table {
        name: name.to_owned(),
        title: title.to_owned(),
        unit,
        better: Better::Less,
        scores: scores.collect(),
    }
}

const CYCLES: u32 = 100;
