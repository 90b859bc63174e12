//! Random faults on a fleet under sessions: workers crash, stop, join, freeze, and lose their connection to the table.
//!
//! A short run of each store is a test. A long run also judges the time without a reader, which depends on the machine:
//! `LEASE_FLEET_MINUTES=20 cargo test --release -p lease-shard-tests long_run -- --ignored --nocapture`.
//! `LEASE_SEED` repeats the faults of a run.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use lease_kinesis::Retrieval;
use lease_test_servers::proxy::Link;
use lease_test_servers::redis;
use lease_test_servers::stream::Stream;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use tokio::time::sleep;

use crate::fleet::{Fleet, Mode};
use crate::table::Table;

#[derive(Debug, Clone, Copy)]
enum Fault {
    /// The process ends, and hands over nothing.
    Crash,
    Stop,
    Join,
    /// The process continues later, and may believe that it still holds its shards.
    Freeze,
    /// The connections to the table break.
    Cut,
    /// Requests to the table arrive late.
    Hold,
    Reshard,
}

struct Chaos<'a> {
    fleet: Fleet<'a>,
    stream: &'a Stream,
    links: BTreeMap<&'static str, Link>,
    random: StdRng,
    ttl: Duration,
    /// The faults so far.
    faults: Vec<Fault>,
}

impl Chaos<'_> {
    async fn join(&mut self) {
        let running = self.fleet.names();
        let Some(name) = NAMES.into_iter().find(|name| !running.contains(name)) else { return };
        let mut place = self.fleet.place();
        if let Some(server) = place.server() {
            let link = Link::start(server).await.unwrap();
            place = place.behind(link.address());
            self.links.insert(name, link);
        }
        self.fleet.start_at(name, place).await;
    }

    fn next(&mut self) -> Fault {
        let all = [Fault::Crash, Fault::Stop, Fault::Join, Fault::Freeze, Fault::Cut, Fault::Hold];
        match self.fleet.names().len() {
            0..=2 => Fault::Join,
            // Each kind comes once, in a short run.
            _ if self.faults.len() < ONCE.len() => ONCE[self.faults.len()],
            _ => *all.choose(&mut self.random).unwrap(),
        }
    }

    async fn inject(&mut self, fault: Fault) {
        let name = *self.fleet.names().choose(&mut self.random).unwrap();
        let length = self.ttl.mul_f64(self.random.random_range(0.5..2.0));
        match fault {
            Fault::Crash => self.fleet.kill(name).await,
            Fault::Stop => self.fleet.stop(name).await,
            Fault::Join => self.join().await,
            Fault::Freeze => {
                self.fleet.freeze(name, length);
                sleep(length).await;
            }
            Fault::Cut | Fault::Hold => {
                let Some(link) = self.links.get(name) else { return };
                if matches!(fault, Fault::Cut) {
                    link.cut();
                } else {
                    link.hold();
                }
                sleep(length).await;
                link.heal();
            }
            Fault::Reshard => {
                let shards = self.stream.open_shards().await;
                self.stream.split(&shards[0]).await;
                self.stream.merge(&shards[1], &shards[2]).await;
            }
        }
        self.faults.push(fault);
    }
}

/// Injects faults one after the other. Returns the longest time without a reader.
async fn run(table: Table, ttl: Duration, length: Duration) -> Duration {
    let seed = option("LEASE_SEED").unwrap_or_else(rand::random);
    let stream = Stream::of_shards(SHARDS).await;
    let fleet = Fleet::new(table, &stream, Retrieval::Polling, Mode::Session).with_ttl(ttl);
    let random = StdRng::seed_from_u64(seed);
    let (links, faults) = (BTreeMap::new(), Vec::new());
    let mut chaos = Chaos { fleet, stream: &stream, links, random, ttl, faults };
    for _worker in 0..4 {
        chaos.join().await;
    }
    let shards = usize::try_from(SHARDS).unwrap();
    chaos.fleet.until_shared(shards).await;
    let producer = stream.produce();
    producer.has_put_more(200).await;

    let end = sleep(length).deadline();
    while end > sleep(Duration::ZERO).deadline() || chaos.faults.len() < ONCE.len() {
        let fault = chaos.next();
        println!("seed {seed}, {} workers: {fault:?}", chaos.fleet.names().len());
        chaos.inject(fault).await;
        chaos.fleet.until_shared(shards).await;
        producer.has_put_more(100).await;
    }

    let put = producer.end().await;
    chaos.fleet.until_all_is_read(&put).await;
    chaos.fleet.log.is_right_amid_faults(&put, &stream.shards().await);
    let (records, longest) = (put.values().sum::<usize>(), chaos.fleet.log.longest_pause());
    println!(
        "seed {seed}: {} faults, {records} records, at most {longest:?} without a reader",
        chaos.faults.len()
    );
    for name in chaos.fleet.names() {
        chaos.fleet.stop(name).await;
    }
    longest
}

fn option<T: FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok()?.parse().ok()
}

async fn short_run(table: Table) {
    run(table, Duration::from_secs(4), Duration::ZERO).await;
}

/// The ttl is the default one. A busy machine may exceed the time without a reader.
async fn long_run(table: Table) {
    let (ttl, minutes) = (Duration::from_secs(10), option("LEASE_FLEET_MINUTES").unwrap_or(20));

    let longest = run(table, ttl, Duration::from_mins(minutes)).await;

    assert!(longest <= ttl + Duration::from_secs(5), "{longest:?} without a reader");
}

#[tokio::test(flavor = "multi_thread")]
async fn dynamodb_fleet_survives_faults() {
    short_run(Table::dynamodb().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_fleet_survives_faults() {
    if redis::available() {
        short_run(Table::redis()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes 20 minutes"]
async fn long_run_on_dynamodb() {
    long_run(Table::dynamodb().await).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes 20 minutes"]
async fn long_run_on_redis() {
    if redis::available() {
        long_run(Table::redis()).await;
    }
}

const SHARDS: i32 = 6;

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

const ONCE: [Fault; 7] = [
    Fault::Freeze,
    Fault::Crash,
    Fault::Join,
    Fault::Hold,
    Fault::Reshard,
    Fault::Cut,
    Fault::Stop,
];
