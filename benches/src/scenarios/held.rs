//! Measures many leases in one process: the processor time of their heartbeats, and the memory per
//! lease.

use std::alloc::System;
use std::env;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use lease_core::{LeaseKey, LeaseOptions, Locker};
use lease_redis::RedisStore;
use lease_test_servers::redis::RedisServer;
use redis::Script;
use rslock::LockManager;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tokio::task::JoinSet;
use tokio::time::{interval, sleep};

use crate::TTL;
use crate::machine::processor_time;
use crate::race::Score;
use crate::report::{Better, Table};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

struct Cost {
    /// Processor time of the client per 1,000 heartbeats, in milliseconds.
    each_thousand: f64,
    bytes: f64,
}

pub(crate) fn in_one_process(rounds: usize) -> Vec<Table> {
    let mut tables = Vec::new();
    for leases in [10_000, 100_000] {
        // rslock needs a task per lease, so more leases would take minutes.
        let contestants = if leases == 10_000 { &CONTESTANTS[..] } else { &CONTESTANTS[..2] };
        let mut costs: Vec<Vec<Cost>> = Vec::new();
        for _ in 0..rounds.min(3) {
            let round = contestants.iter().map(|(short, _)| in_a_process(short, leases));
            costs.push(round.collect());
        }
        let scores = |of: fn(&Cost) -> f64| {
            let names = contestants.iter().map(|(_, name)| *name).enumerate();
            names
                .map(|(index, name)| Score {
                    name: name.to_owned(),
                    values: costs.iter().map(|round| of(&round[index])).collect(),
                    ratios: costs.iter().map(|round| of(&round[index]) / of(&round[0])).collect(),
                    failed: 0,
                })
                .collect()
        };
        tables.push(Table {
            name: format!("held-{leases}-processor"),
            title: format!("{leases} leases in one process: processor time for 1,000 heartbeats"),
            unit: "ms",
            better: Better::Less,
            scores: scores(|cost| cost.each_thousand),
        });
        tables.push(Table {
            name: format!("held-{leases}-bytes"),
            title: format!("{leases} leases in one process: memory per lease"),
            unit: "bytes",
            better: Better::Less,
            scores: scores(|cost| cost.bytes),
        });
    }
    tables
}

const CONTESTANTS: [(&str, &str); 3] = [
    ("bare", "bare pipelined scripts"),
    ("ours", "this library"),
    ("rslock", "rslock 0.10.0, a task per lease"),
];

/// No other code of that process allocates or frees memory.
fn in_a_process(contestant: &str, leases: u32) -> Cost {
    let task = format!("{contestant} {leases}");
    let done = Command::new(env::current_exe().unwrap()).args(["--hold", &task]).output().unwrap();
    let text = String::from_utf8(done.stdout).unwrap();
    let (each_thousand, bytes) = text.trim().split_once(' ').unwrap();
    Cost { each_thousand: each_thousand.parse().unwrap(), bytes: bytes.parse().unwrap() }
}

pub(crate) async fn hold(task: &str) -> String {
    let (contestant, leases) = task.split_once(' ').unwrap();
    let leases = leases.parse().unwrap();
    let cost = match contestant {
        "bare" => bare(leases).await,
        "ours" => ours(leases).await,
        _ => rslock(leases).await,
    };
    format!("{} {}", cost.each_thousand, cost.bytes)
}

async fn bare(leases: u32) -> Cost {
    let server = RedisServer::start();
    let client = redis::Client::open(server.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    connection.set_response_timeout(Duration::from_mins(1));
    let script = Script::new(
        "if redis.call('GET', KEYS[1]) == ARGV[1] then
            return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0",
    );
    script.load_async(&mut connection).await.unwrap();
    let before = bytes();
    let keys: Vec<String> = (0..leases).map(|number| format!("key-{number}")).collect();
    for some in keys.chunks(AT_ONCE) {
        let mut pipeline = redis::pipe();
        for key in some {
            pipeline.cmd("SET").arg(key).arg("value").arg("PX").arg(millis(TTL * 6)).ignore();
        }
        let () = pipeline.query_async(&mut connection).await.unwrap();
    }
    let kept = bytes() - before;
    let cpu = processor_time();
    let mut period = interval(PERIOD);
    period.tick().await;
    for _ in 0..PERIODS {
        period.tick().await;
        for some in keys.chunks(AT_ONCE) {
            let mut pipeline = redis::pipe();
            for key in some {
                let command = pipeline.cmd("EVALSHA").arg(script.get_hash()).arg(1);
                command.arg(key).arg("value").arg(millis(TTL));
            }
            let answers: Vec<u32> = pipeline.query_async(&mut connection).await.unwrap();
            assert!(answers.iter().all(|answer| *answer == 1));
        }
    }
    cost(leases, processor_time() - cpu, kept)
}

async fn ours(leases: u32) -> Cost {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let locker = Locker::new(store).with_options(LeaseOptions::new(TTL).unwrap());
    let before = bytes();
    let keys = (0..leases).map(|number| LeaseKey::new(format!("key-{number}")).unwrap());
    let obtained = stream::iter(keys).map(|key| {
        let locker = &locker;
        async move { locker.obtain(&key).await.unwrap().into_lease().unwrap() }
    });
    let held: Vec<_> = obtained.buffer_unordered(AT_ONCE).collect().await;
    // After one period, the locker has spread the heartbeats evenly.
    sleep(PERIOD).await;
    let kept = bytes() - before;
    let cpu = processor_time();
    sleep(PERIOD * PERIODS).await;
    let cpu = processor_time() - cpu;
    assert!(held.iter().all(lease_core::Lease::is_held));
    // Without a server, the drop of the leases takes no time.
    drop(server);
    cost(leases, cpu, kept)
}

async fn rslock(leases: u32) -> Cost {
    let server = RedisServer::start();
    let locks = Arc::new(LockManager::new(vec![server.url()]));
    let before = bytes();
    let mut tasks = JoinSet::new();
    for number in 0..leases {
        let locks = Arc::clone(&locks);
        let key = format!("key-{number}");
        let offset = PERIOD * number / leases;
        let mut lock = locks.lock(key.as_str(), TTL * 6).await.unwrap();
        tasks.spawn(async move {
            sleep(offset).await;
            let mut period = interval(PERIOD);
            loop {
                period.tick().await;
                lock = locks.extend(&lock, TTL).await.unwrap();
            }
        });
    }
    sleep(PERIOD).await;
    let kept = bytes() - before;
    let cpu = processor_time();
    sleep(PERIOD * PERIODS).await;
    cost(leases, processor_time() - cpu, kept)
}

fn cost(leases: u32, cpu: f64, kept: usize) -> Cost {
    let heartbeats = f64::from(leases) * f64::from(PERIODS);
    let kept = f64::from(u32::try_from(kept).unwrap());
    Cost { each_thousand: cpu * 1e6 / heartbeats, bytes: kept / f64::from(leases) }
}

fn bytes() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap()
}

/// The default period of heartbeats in this library.
const PERIOD: Duration = Duration::from_nanos(3_333_333_333);

const PERIODS: u32 = 3;

const AT_ONCE: usize = 256;
