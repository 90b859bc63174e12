//! Measures leases against the bare scripts, and a quorum with missing servers.
//!
//! Each row is the median of runs that alternate with runs of the bare scripts. The benchmark starts its own
//! servers: `cargo bench -p lease-redis --features simulation`.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    reason = "a failed setup ends the benchmark, which prints its results"
)]

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use lease_core::store::{Beat, BootClock, Claim, Clock, Grant, LockStore, Nonce, Obtained};
use lease_core::{LeaseKey, Lessee, Locker};
use lease_redis::{RedisQuorum, RedisStore};
use lease_test_servers::measure::{is_measuring, median, timed};
use lease_test_servers::proxy::Link;
use lease_test_servers::redis::{RedisServer, independent};
use redis::Script;
use redis::aio::MultiplexedConnection;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

const RUNS: usize = 7;
const TTL: Duration = Duration::from_secs(30);

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    if !is_measuring() {
        return;
    }
    for tasks in [1, 64] {
        uncontended(tasks).await;
    }
    for missing in [Missing::Hung, Missing::Killed, Missing::Refused] {
        quorum_without(missing).await;
    }
    hand_off().await;
    heartbeats().await;
}

async fn uncontended(tasks: usize) {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let bare = Bare::connect(&server.url()).await;
    let rounds = 20_000 / tasks;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let all = (0..tasks).map(|task| {
            let store = store.clone();
            tokio::spawn(async move {
                for _ in 0..rounds {
                    let grant = obtain(&store, &format!("key-{task}")).await;
                    store.release(&grant, None).await.unwrap();
                }
            })
        });
        ours.push(timed(join_all(all)).await);
        let all = (0..tasks).map(|task| {
            let mut bare = bare.clone();
            tokio::spawn(async move {
                for _ in 0..rounds {
                    bare.obtain_and_release(&format!("{{key-{task}}}")).await;
                }
            })
        });
        theirs.push(timed(join_all(all)).await);
    }
    let (ours, theirs) = (median(ours), median(theirs));
    let count = (rounds * tasks) as f64;
    println!(
        "uncontended, {tasks} tasks: {:.0} obtain + release per second, bare scripts {:.0}: {:.2}",
        count / ours,
        count / theirs,
        theirs / ours
    );
}

/// The fault of a quorum's missing nodes.
#[derive(Debug, Clone, Copy)]
enum Missing {
    /// The nodes accept connections and answer nothing.
    Hung,
    /// The nodes are gone, and their proxies close connections.
    Killed,
    /// The nodes and their proxies are gone: connections are refused.
    Refused,
}

/// Measures obtain and heartbeat over links of 5 ms, with all five nodes, then with one and two missing.
/// The bare round sends one script to all nodes and waits for three answers.
async fn quorum_without(missing: Missing) {
    let mut servers = independent(5);
    let mut ways = Vec::new();
    for server in &servers {
        ways.push(Link::with_latency(server.address(), Duration::from_millis(5)).await.unwrap());
    }
    let urls: Vec<_> = ways.iter().map(|way| format!("redis://{}", way.address())).collect();
    let quorum = RedisQuorum::builder(urls.clone()).without_rejoin_delay().connect().await.unwrap();
    let mut bare = Vec::new();
    for url in &urls {
        bare.push(Bare::connect(url).await);
    }
    for count in 0..=2 {
        if count > 0 {
            match missing {
                Missing::Hung => servers[count - 1].hang(),
                Missing::Killed => servers[count - 1].kill(),
                Missing::Refused => {
                    servers[count - 1].kill();
                    drop(ways.remove(0));
                }
            }
        }
        let (mut obtains, mut beats, mut rounds) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..150 {
            let clock = BootClock::new();
            let began = clock.now();
            let grant = obtain(&quorum, "job").await;
            obtains.push(clock.now().since(began).as_secs_f64());
            let began = clock.now();
            quorum.heartbeat(&grant, Beat::new(1)).await.unwrap();
            beats.push(clock.now().since(began).as_secs_f64());
            quorum.release(&grant, None).await.unwrap();

            let began = clock.now();
            // Requests to hung nodes are dropped with the set. Nodes that are gone are skipped.
            let mut asked = JoinSet::new();
            let there = if matches!(missing, Missing::Hung) { 0 } else { count };
            let key = format!("{{{}}}", Nonce::random());
            for bare in &bare[there..] {
                let (mut bare, key) = (bare.clone(), key.clone());
                asked.spawn(async move { bare.obtain(&key).await });
            }
            for _ in 0..3 {
                asked.join_next().await.unwrap().unwrap();
            }
            rounds.push(clock.now().since(began).as_secs_f64());
        }
        println!(
            "quorum of 5 at 5 ms, {count} {missing:?}: p50 obtain {:.2} ms, heartbeat {:.2} ms, \
             bare round {:.2} ms",
            median(obtains) * 1e3,
            median(beats) * 1e3,
            median(rounds) * 1e3
        );
    }
    servers[..2].iter().for_each(RedisServer::go_on);
}

/// Measures hand-offs over a link of 10 ms to one server. Each of eight waiters has its own connections.
async fn hand_off() {
    const ROUND_TRIP: Duration = Duration::from_millis(10);
    let server = RedisServer::start();
    let way = Link::with_latency(server.address(), ROUND_TRIP).await.unwrap();
    let url = format!("redis://{}", way.address());
    let clock = Arc::new(BootClock::new());
    let (obtained, mut turns) = mpsc::unbounded_channel();
    let mut waiters = Vec::new();
    for _ in 0..8 {
        let store = RedisStore::connect(&url).await.unwrap();
        let (clock, obtained) = (Arc::clone(&clock), obtained.clone());
        waiters.push(tokio::spawn(async move {
            let locker = Locker::new(store);
            loop {
                let lease = locker.wait_until_obtained(&"job".parse().unwrap()).await.unwrap();
                let held = clock.now();
                // Long enough for all others to be waiting again.
                tokio::time::sleep(Duration::from_millis(60)).await;
                let released = clock.now();
                if obtained.send((held, released)).is_err() {
                    return;
                }
                lease.release().await.unwrap();
            }
        }));
    }
    let mut gaps = Vec::new();
    let before = calls(&server);
    let mut last = turns.recv().await.unwrap().1;
    for _ in 0..100 {
        let (held, released) = turns.recv().await.unwrap();
        gaps.push(held.since(last).as_secs_f64());
        last = released;
    }
    let attempts = calls(&server) - before;
    waiters.iter().for_each(tokio::task::JoinHandle::abort);
    println!(
        "hand-off at 10 ms, 8 waiters: p50 {:.2} round trips, {:.1} scripts per hand-off",
        median(gaps) / ROUND_TRIP.as_secs_f64(),
        attempts as f64 / 100.0
    );
}

fn calls(server: &RedisServer) -> u64 {
    let stats = server.command("INFO commandstats");
    let line = stats.lines().find(|line| line.starts_with("cmdstat_evalsha:"));
    let calls = line.and_then(|line| line.split_once("calls=")?.1.split(',').next()?.parse().ok());
    calls.unwrap_or(0)
}

/// Measures the heartbeats of 10,000 leases, and the same scripts in a pipeline.
async fn heartbeats() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let bare = Bare::connect(&server.url()).await;
    let mut beats = Vec::new();
    for number in 0..10_000 {
        beats.push((obtain(&store, &format!("key-{number}")).await, Beat::new(0)));
    }
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let mut number = 0;
    for _ in 0..RUNS {
        number += 1;
        for (_, beat) in &mut beats {
            *beat = Beat::new(number);
        }
        let cpu = processor_time();
        for some in beats.chunks(256) {
            let answered = store.heartbeat_all(some).filter(|(_, it)| {
                let answered = it.is_ok();
                async move { answered }
            });
            assert_eq!(answered.count().await, some.len());
        }
        ours.push(processor_time() - cpu);
        number += 1;
        let cpu = processor_time();
        for some in beats.chunks(256) {
            bare.heartbeats(some, number).await;
        }
        theirs.push(processor_time() - cpu);
    }
    let (ours, theirs) = (median(ours), median(theirs));
    println!(
        "10,000 heartbeats: {:.1} ms of processor time, bare pipelined scripts {:.1} ms: {:.2}",
        ours * 1e3,
        theirs * 1e3,
        ours / theirs
    );
}

/// Runs the scripts without the store.
#[derive(Clone)]
struct Bare {
    connection: MultiplexedConnection,
    obtain: Arc<Script>,
    release: Arc<Script>,
    heartbeat: Arc<Script>,
}

impl Bare {
    async fn connect(url: &str) -> Self {
        let client = redis::Client::open(url).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        connection.set_response_timeout(Duration::from_secs(60));
        let script = |name| Arc::new(Script::new(lease_redis::script(name).unwrap()));
        let obtain = script("obtain");
        let release = script("release");
        let heartbeat = script("heartbeat");
        for script in [&obtain, &release, &heartbeat] {
            script.load_async(&mut connection).await.unwrap();
        }
        Self { connection, obtain, release, heartbeat }
    }

    async fn obtain(&mut self, key: &str) -> (String, u64) {
        let nonce = Nonce::random().to_string();
        let mut call = self.obtain.key(key);
        call.key(format!("{key}:attributes"));
        call.arg(&nonce).arg("a").arg(30_000).arg(604_800_000).arg(0);
        let answer: (String, u64, redis::Value) =
            call.invoke_async(&mut self.connection).await.unwrap();
        assert_eq!(answer.0, "granted");
        (nonce, answer.1)
    }

    async fn obtain_and_release(&mut self, key: &str) {
        let (nonce, token) = self.obtain(key).await;
        let mut call = self.release.key(key);
        call.arg(nonce).arg(token).arg("").arg(604_800_000).arg(0);
        call.arg("PUBLISH").arg(format!("{key}:freed"));
        let freed: i64 = call.invoke_async(&mut self.connection).await.unwrap();
        assert_eq!(freed, 1);
    }

    async fn heartbeats(&self, beats: &[(Grant, Beat)], number: u64) {
        let mut pipeline = redis::pipe();
        for (grant, _) in beats {
            let key = format!("lease:{{{}}}", grant.key);
            let command = pipeline.cmd("EVALSHA").arg(self.heartbeat.get_hash()).arg(1);
            command.arg(&key).arg(604_800_000);
            command.arg(grant.nonce.to_string()).arg(number).arg(30_000).arg(grant.token.get());
        }
        let mut connection = self.connection.clone();
        let answers: Vec<Vec<String>> = pipeline.query_async(&mut connection).await.unwrap();
        assert_eq!(answers.len(), beats.len());
    }
}

async fn obtain(store: &impl LockStore, key: &str) -> Grant {
    let key = LeaseKey::new(key).unwrap();
    let claim = Claim::new(key, Lessee::new("a").unwrap(), Nonce::random(), TTL);
    match store.obtain(&claim).await.unwrap() {
        Obtained::Granted(grant, _) => grant,
        Obtained::Held(holder) => panic!("held by {holder:?}"),
    }
}

/// The processor time of this process's threads, in seconds.
fn processor_time() -> f64 {
    let mut nanos = 0.0;
    for task in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let path = task.path().join("schedstat");
        let text = std::fs::read_to_string(path).unwrap_or_default();
        nanos += text.split(' ').next().and_then(|it| it.parse::<f64>().ok()).unwrap_or(0.0);
    }
    nanos / 1e9
}
