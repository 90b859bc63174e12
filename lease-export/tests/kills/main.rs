//! Kills exporters at each step, on a real Redis server. Each event must arrive, and no two
//! exporters may run at the same time.
//!
//! `cargo test -p lease-export --all-features --test kills -- five_hundred --ignored --nocapture`
//! kills 500 times, and prints its figures.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test fails by a panic and prints its figures"
)]

mod exporter;
mod steps;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lease_core::store::{BootClock, Clock};
use lease_export::{Appended, Capacity, Event, EventBuffer, RedisBuffer, RedisLink};
use lease_test_servers::redis::{RedisServer, available, until};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

#[tokio::test(flavor = "multi_thread")]
async fn twenty_five_kills_lose_nothing() {
    kill(25).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes some minutes"]
async fn five_hundred_kills_lose_nothing() {
    kill(500).await;
}

const EXPORTERS: u64 = 3;

/// The steps are in the order of an export.
const STEPS: [&str; 11] = [
    "before enqueue",
    "after enqueue",
    "after take",
    "before read",
    "after read",
    "before put",
    "after put",
    "before remove",
    "after remove",
    "before finish",
    "after finish",
];

const PACE: Duration = Duration::from_millis(20);

struct Scene {
    server: RedisServer,
    kills: u64,
    died: AtomicU64,
}

async fn kill(kills: u64) {
    if !available() {
        return;
    }
    let seed = rand::random::<u64>() >> 1;
    println!("seed {seed}");
    let began = BootClock::new().now();
    let scene = Arc::new(Scene { server: RedisServer::start(), kills, died: AtomicU64::new(0) });
    let link = RedisLink::connect(&scene.server.url()).await.unwrap();
    let buffer = RedisBuffer::new(link, "events", Capacity::default());
    let connections = || {
        let info = scene.server.command("INFO clients");
        info.lines().find_map(|line| line.strip_prefix("connected_clients:")).map(str::to_owned)
    };
    let ours = connections();

    let mut slots = JoinSet::new();
    for slot in 1..=EXPORTERS {
        let chance = StdRng::seed_from_u64(seed + slot);
        slots.spawn(keep_killing(Arc::clone(&scene), slot, chance));
    }
    let producer = tokio::spawn(produce(Arc::clone(&scene), buffer.clone()));
    let mut ends = BTreeMap::new();
    while let Some(ended) = slots.join_next().await {
        for end in ended.unwrap() {
            *ends.entry(end).or_insert(0) += 1;
        }
    }
    let appended = producer.await.unwrap();

    // Redis may still run the last commands of killed exporters until their connections are closed.
    until("their connections are closed", || connections() == ours);
    let waiting = pending(&scene.server).await;
    assert_eq!(buffer.pending().await.unwrap(), waiting.len() as u64, "seed {seed}");
    let left: BTreeSet<_> = waiting.iter().copied().collect();
    assert_eq!(left.len(), waiting.len(), "an event is pending twice, seed {seed}");
    let known = judge(&scene.server).await.into_iter().chain(waiting).collect::<BTreeSet<_>>();
    assert_eq!(known, (1..=appended).collect(), "event is neither sent nor pending, seed {seed}");

    let last = exporter::start(&scene.server, "last", "none", 0);
    let drained = async {
        while buffer.pending().await.unwrap() > 0 {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(300), drained).await.expect("pending events are sent");
    drop(last);
    let arrived = judge(&scene.server).await;

    let distinct: BTreeSet<_> = arrived.iter().copied().collect();
    assert_eq!(distinct, (1..=appended).collect(), "events lost or invented, seed {seed}");
    let took = BootClock::new().now().since(began);
    println!(
        "{kills} kills in {took:.0?}: {appended} events appended, {} arrived, {} of them again, {} \
         were pending after the last kill; killed:",
        distinct.len(),
        arrived.len() - distinct.len(),
        left.len()
    );
    for (end, count) in &ends {
        println!("  {count:4} {end}");
    }
    for step in STEPS.iter().filter(|_| kills >= 500) {
        assert!(ends.contains_key(&format!("at \"{step}\"")), "no exporter died {step}: {ends:?}");
    }
}

/// Appends a few events at a time until the kills end. Returns their number.
async fn produce(scene: Arc<Scene>, buffer: RedisBuffer) -> u64 {
    let mut appended = 0;
    while scene.died.load(Ordering::SeqCst) < scene.kills {
        // A killed exporter has often sent little, so the backlog must stay small.
        if buffer.pending().await.unwrap() > 40 {
            sleep(PACE).await;
            continue;
        }
        let numbers = appended + 1..=appended + 20;
        let event = |number: u64| Event::new(id(number), &json!({ "number": number })).unwrap();
        let events: Vec<_> = numbers.map(event).collect();
        let kept = buffer.append(&events).await.unwrap();
        assert_eq!(kept, Appended::Kept { dropped: 0 });
        appended += 20;
        sleep(PACE).await;
    }
    appended
}

fn id(number: u64) -> lease_export::EventId {
    format!("event-{number}").parse().unwrap()
}

async fn keep_killing(scene: Arc<Scene>, slot: u64, mut chance: StdRng) -> Vec<String> {
    let mut ends = Vec::new();
    for life in 1.. {
        if scene.died.load(Ordering::SeqCst) >= scene.kills {
            return ends;
        }
        // Half of the exporters kill themselves at a step. The test kills the other half.
        let step = STEPS[chance.random_range(0..STEPS.len())];
        let times = chance.random_range(1..=3);
        let by_itself = chance.random_bool(0.5);
        let name = format!("exporter-{slot}.{life}");
        let mut process =
            exporter::start(&scene.server, &name, step, if by_itself { times } else { 0 });
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let (mut last, mut seen) = ("ready".to_owned(), 0);
        while let Ok(Some(line)) = lines.next_line().await {
            seen += u64::from(line == step);
            last = line;
            if !by_itself && last == step && seen == times {
                // A random moment between this step and the next step.
                let moment = chance.random_range(0..2_000);
                sleep(Duration::from_micros(moment)).await;
                process.start_kill().unwrap();
            }
            if scene.died.load(Ordering::SeqCst) >= scene.kills {
                break;
            }
        }
        process.kill().await.unwrap();
        if scene.died.fetch_add(1, Ordering::SeqCst) < scene.kills {
            ends.push(if by_itself {
                format!("at \"{last}\"")
            } else {
                format!("past \"{last}\"")
            });
        }
    }
    ends
}

async fn pending(server: &RedisServer) -> Vec<u64> {
    let client = redis::Client::open(server.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let mut range = redis::cmd("XRANGE");
    range.arg("events:{events}:stream").arg("-").arg("+");
    let entries: Vec<(String, Vec<String>)> = range.query_async(&mut connection).await.unwrap();
    entries.iter().map(|(_, fields)| number(&fields[1])).collect()
}

fn number(id: &str) -> u64 {
    id.strip_prefix("event-").unwrap().parse().unwrap()
}

/// Two exporters ran at the same time if tokens decrease, or if one token belongs to two exporters.
async fn judge(server: &RedisServer) -> Vec<u64> {
    let client = redis::Client::open(server.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let mut range = redis::cmd("LRANGE");
    range.arg("sink").arg(0).arg(-1);
    let records: Vec<String> = range.query_async(&mut connection).await.unwrap();
    let (mut largest, mut exporters) = (0, BTreeMap::new());
    let mut arrived = Vec::new();
    for record in records {
        let words: Vec<_> = record.split(' ').collect();
        let token: u64 = words[0].parse().unwrap();
        assert!(token >= largest, "two exporters ran at once: token {token} after {largest}");
        largest = token;
        let exporter = exporters.entry(token).or_insert_with(|| words[1].to_owned());
        assert_eq!(exporter, words[1], "two exporters have token {token}");
        arrived.extend(words[2..].iter().map(|id| number(id)));
    }
    arrived
}
