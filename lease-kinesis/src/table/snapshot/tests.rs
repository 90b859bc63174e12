#![expect(clippy::print_stdout, reason = "a test that reports")]

use std::collections::BTreeSet;
use std::fmt;
#[cfg(feature = "kcl")]
use std::sync::Arc;
use std::time::Duration;

use lease_core::{Attempt, Lease, Locker, Written};
use lease_memory::MemoryStore;
use rustix::time::{ClockId, clock_gettime};

use super::*;
use crate::decide::{Decision, decide};
use crate::fleet::Sightings;
use crate::names::ShardName;
use crate::plan::plan;
use crate::row;
use crate::source::{SimStream, Source};
use crate::time::now;
#[cfg(feature = "kcl")]
use crate::told::Told;

/// A fleet's table, with all shards held as planned.
struct Fleet {
    application: Application,
    table: MemoryStore,
    /// Held as long as this is.
    leases: Vec<Lease>,
}

impl Fleet {
    async fn new(shards: u16, workers: usize) -> Self {
        let (application, table): (Application, _) = ("shop".parse().unwrap(), MemoryStore::new());
        let mut fleet = Self { application, table, leases: Vec::new() };
        let lockers: BTreeMap<_, _> = (0..workers).map(|worker| fleet.locker(worker)).collect();
        for (name, locker) in &lockers {
            fleet.obtain(locker, &fleet.application.worker(name).unwrap()).await;
            let row = fleet.leases.last().unwrap().grant();
            let change = fleet::change(&Member::new(name.clone()));
            assert_eq!(fleet.table.update(row, &change).await.unwrap(), Written::Applied);
        }
        for shard in SimStream::new(shards).open_shards() {
            let key = fleet.application.shard(&ShardName { stream: None, shard: shard.id.clone() });
            let attributes = row::of_new(&shard, &Position::TrimHorizon);
            assert!(fleet.table.create(&key, &attributes).await.unwrap());
        }
        let rows = Snapshot::take(&fleet.table, &fleet.application, &mut RepeatsOfEach::default())
            .await
            .unwrap();
        for (key, name) in plan(&rows.placement(), &rows.members) {
            fleet.obtain(&lockers[&name], &key).await;
        }
        fleet
    }

    fn locker(&self, worker: usize) -> (Lessee, Locker) {
        let name = Lessee::new(format!("worker-{worker}")).unwrap();
        (name.clone(), Locker::new(self.table.clone()).with_lessee(name))
    }

    async fn obtain(&mut self, locker: &Locker, key: &LeaseKey) {
        match locker.obtain(key).await.unwrap() {
            Attempt::Obtained(lease) => self.leases.push(lease),
            Attempt::Held(holder) => panic!("held by {holder:?}"),
        }
    }

    /// Looks, plans and decides as the first worker does; answers how many rows it read.
    async fn tick(&self, sightings: &mut Sightings) -> usize {
        let mut snapshot =
            Snapshot::take(&self.table, &self.application, &mut RepeatsOfEach::default())
                .await
                .unwrap();
        let members = sightings.look(std::mem::take(&mut snapshot.members), now(), Duration::ZERO);
        let (held, me) = (snapshot.placement(), Lessee::new("worker-0").unwrap());
        let mine = held.iter().filter(|(_, holder)| holder.as_ref() == Some(&me));
        let reading: BTreeSet<_> = mine.map(|(key, _)| key.clone()).collect();
        let decision = decide(&me, &reading, &held, &plan(&held, &members));
        if !members.is_empty() {
            assert_eq!(decision, Decision::default(), "all is as planned");
        }
        snapshot.rows
    }
}

/// Prints what a tick of one worker of fifty costs: `cargo test --release -p lease-kinesis --lib
/// tick -- --nocapture`.
#[tokio::test(start_paused = true)]
async fn a_tick_reads_each_row_once_and_costs_little_more_for_each_of_many_than_of_few() {
    let mut fleets = Vec::new();
    for shards in [125, 250, 500, 1000] {
        fleets.push(Measured::new(Fleet::new(shards, WORKERS).await, usize::from(shards)));
    }

    // By turns, and as often as it takes: what else a machine has to do only ever adds to a tick, to
    // one of few rows at one moment and to one of many at another. What is compared each with each
    // costs too much however often one looks.
    for round in 1..=MOST_ROUNDS {
        for fleet in &mut fleets {
            fleet.tick().await;
        }
        if round >= LEAST_ROUNDS && fleets.iter().all(|fleet| costs_little_more(fleet, &fleets[0]))
        {
            break;
        }
    }

    for fleet in &fleets {
        println!("{fleet}");
        assert!(costs_little_more(fleet, &fleets[0]), "{fleet}, and of few {}", fleets[0]);
    }
}

/// A fleet's tick, and the least that one has cost.
struct Measured {
    fleet: Fleet,
    sightings: Sightings,
    shards: usize,
    best: Duration,
}

impl Measured {
    fn new(fleet: Fleet, shards: usize) -> Self {
        Self { fleet, sightings: Sightings::default(), shards, best: Duration::MAX }
    }

    async fn tick(&mut self) {
        let begun = spent();
        let rows = self.fleet.tick(&mut self.sightings).await;
        self.best = self.best.min(spent().saturating_sub(begun));
        assert_eq!(rows, self.shards + WORKERS);
    }

    fn of_each_row(&self) -> Duration {
        self.best / u32::try_from(self.shards + WORKERS).unwrap()
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (best, of_each) = (self.best.as_micros(), self.of_each_row().as_nanos());
        write!(f, "{:>5} shards: {best:>6} us, {of_each:>5} ns for each row", self.shards)
    }
}

/// What is sorted costs more for each of many, and the rows of few fit into a cache; what is compared
/// each with each would cost six times as much.
fn costs_little_more(of_many: &Measured, of_few: &Measured) -> bool {
    of_many.of_each_row() < of_few.of_each_row() * 3
}

/// Of this thread alone: a machine with much else to do takes no more of it.
fn spent() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap()
}

#[tokio::test(start_paused = true)]
async fn what_was_merged_passes_and_what_it_became_is_coming() {
    let fleet = Fleet::new(3, 1).await;
    let stream = SimStream::new(3);
    let [one, other] = [0, 1].map(|shard| stream.open_shards()[shard].id.clone());
    let child = stream.merge(&one, &other).unwrap();
    let child = stream.open_shards().into_iter().find(|shard| shard.id == child).unwrap();
    let key = |shard| fleet.application.shard(&ShardName { stream: None, shard });
    let attributes = row::of_new(&child, &Position::TrimHorizon);
    assert!(fleet.table.create(&key(child.id), &attributes).await.unwrap());

    let snapshot = Snapshot::take(&fleet.table, &fleet.application, &mut RepeatsOfEach::default())
        .await
        .unwrap();
    let reshaping = snapshot.reshaping();

    assert_eq!(reshaping.passing, BTreeSet::from([key(one), key(other)]));
    assert_eq!(reshaping.coming, 1);
}

/// Workers of KCL hold shards that wait for their parents, too.
#[cfg(feature = "kcl")]
#[tokio::test(start_paused = true)]
async fn what_workers_of_kcl_hold_neither_passes_nor_comes_for_ours() {
    let stream = SimStream::new(2);
    let [one, other] = [0, 1].map(|shard| stream.open_shards()[shard].id.clone());
    stream.merge(&one, &other).unwrap();
    let (application, table): (Application, _) = ("shop".parse().unwrap(), MemoryStore::new());
    let mut fleet = Fleet { application, table, leases: Vec::new() };
    let (_, locker) = fleet.locker(0);
    for shard in stream.shards().await.unwrap() {
        let key = fleet.application.shard(&ShardName { stream: None, shard: shard.id.clone() });
        let mut attributes = row::of_new(&shard, &Position::TrimHorizon);
        if shard.id != one {
            attributes.insert(row::OWNER.to_owned(), "kcl".into());
        }
        assert!(fleet.table.create(&key, &attributes).await.unwrap());
        fleet.obtain(&locker, &key).await;
    }

    let snapshot = Snapshot::take(&fleet.table, &fleet.application, &mut RepeatsOfEach::default())
        .await
        .unwrap();
    let reshaping = snapshot.reshaping();

    let passing = fleet.application.shard(&ShardName { stream: None, shard: one });
    assert_eq!(reshaping.passing, BTreeSet::from([passing]));
    assert_eq!(reshaping.coming, 0);
}

/// What is no lease, by another program or a slip of somebody's hand, stops nobody else's work.
#[cfg(feature = "kcl")]
#[tokio::test]
async fn a_row_that_cannot_be_read_is_warned_of_and_the_others_are_read() {
    use aws_sdk_dynamodb::types::AttributeValue;

    let server = lease_tests::dynamodb::Server::dynoxide().await;
    let client = server.client();
    let ours = Arc::new(MemoryStore::new());
    let table = crate::KclTable::new(client.clone(), "shop", ours).unwrap();
    table.ensure_table().await.unwrap();
    let application: Application = "shop".parse().unwrap();
    let mut keys = BTreeSet::new();
    let shards = SimStream::new(3).open_shards();
    for shard in &shards {
        let key = application.shard(&ShardName { stream: None, shard: shard.id.clone() });
        let attributes = row::of_new(shard, &Position::TrimHorizon);
        assert!(table.create(&key, &attributes).await.unwrap());
        keys.insert(key);
    }
    let spoiled = AttributeValue::S(shards[1].id.to_string());
    let spoil = client.update_item().table_name("shop").key("leaseKey", spoiled);
    let spoil = spoil.update_expression("SET leaseCounter = :many");
    let many = AttributeValue::S("many".to_owned());
    spoil.expression_attribute_values(":many", many).send().await.unwrap();
    let (told, _listening) = Told::listen();

    let snapshot =
        Snapshot::take(&table, &application, &mut RepeatsOfEach::default()).await.unwrap();

    keys.retain(|key| !key.as_str().ends_with(shards[1].id.as_str()));
    assert_eq!(snapshot.placement().into_keys().collect::<BTreeSet<_>>(), keys);
    let log = told.text();
    assert!(log.contains("WARN") && log.contains(shards[1].id.as_str()), "{log}");
    assert_eq!(log.lines().count(), 1, "{log}");
}

const WORKERS: usize = 50;

/// Of a tick that nothing comes between, some are among them, on a machine that does little else.
const LEAST_ROUNDS: u32 = 40;
/// Half a minute without an optimizer: a machine that does much else lets some ticks alone by then.
const MOST_ROUNDS: u32 = 1000;
