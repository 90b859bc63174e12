#![expect(clippy::print_stdout, reason = "a test that reports")]

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use lease_core::{Attempt, Lease, Locker, Written};
use lease_memory::MemoryStore;
use lease_test_servers::warnings::Warnings;
use rustix::time::{ClockId, clock_gettime};

use super::*;
use crate::names::ShardName;
use crate::plan::decide::{Decision, decide};
use crate::plan::fleet::MemberTracker;
use crate::plan::plan;
use crate::source::{SimStream, Source};
use crate::table::row;
use crate::time::now;

/// Each worker holds the shards that the plan assigns to it.
struct Fleet {
    application: Application,
    table: MemoryStore,
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
            let attributes = row::new_row(&shard, &Position::TrimHorizon);
            assert!(fleet.table.create(&key, &attributes).await.unwrap());
        }
        let rows = Snapshot::take(&fleet.table, &fleet.application, &mut LogThrottles::default())
            .await
            .unwrap();
        for (key, name) in plan(&rows.placement(|_row| true), &rows.members) {
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

    /// Does what the first worker does at each tick. Returns the number of rows read.
    async fn tick(&self, tracker: &mut MemberTracker) -> usize {
        let mut snapshot =
            Snapshot::take(&self.table, &self.application, &mut LogThrottles::default())
                .await
                .unwrap();
        let members = tracker.look(std::mem::take(&mut snapshot.members), now(), Duration::ZERO);
        let (held, me) = (snapshot.placement(|_row| true), Lessee::new("worker-0").unwrap());
        let mine = held.iter().filter(|(_, holder)| holder.as_ref() == Some(&me));
        let reading: BTreeSet<_> = mine.map(|(key, _)| key.clone()).collect();
        let decision = decide(&me, &reading, &held, &plan(&held, &members));
        if !members.is_empty() {
            assert_eq!(decision, Decision::default(), "each worker holds its planned shards");
        }
        snapshot.rows
    }
}

/// Prints the cost of a tick: `cargo test --release -p lease-kinesis --lib tick -- --nocapture`.
#[tokio::test(start_paused = true)]
async fn tick_reads_each_row_once_at_nearly_linear_cost() {
    let mut fleets = Vec::new();
    for shards in [125, 250, 500, 1000] {
        fleets.push(Measured::new(Fleet::new(shards, WORKERS).await, usize::from(shards)));
    }

    // Other load can only raise a tick's cost, so the test compares the minimum cost of many ticks.
    for round in 1..=MAX_ROUNDS {
        for fleet in &mut fleets {
            fleet.tick().await;
        }
        if round >= MIN_ROUNDS && fleets.iter().all(|fleet| costs_little_more(fleet, &fleets[0])) {
            break;
        }
    }

    for fleet in &fleets {
        println!("{fleet}");
        assert!(costs_little_more(fleet, &fleets[0]), "many shards: {fleet}; few: {}", fleets[0]);
    }
}

struct Measured {
    fleet: Fleet,
    tracker: MemberTracker,
    shards: usize,
    best: Duration,
}

impl Measured {
    fn new(fleet: Fleet, shards: usize) -> Self {
        Self { fleet, tracker: MemberTracker::default(), shards, best: Duration::MAX }
    }

    async fn tick(&mut self) {
        let begun = spent();
        let rows = self.fleet.tick(&mut self.tracker).await;
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

/// Sorting and cache misses cost more. A quadratic algorithm would cost six times as much per row.
fn costs_little_more(of_many: &Measured, of_few: &Measured) -> bool {
    of_many.of_each_row() < of_few.of_each_row() * 3
}

/// The CPU time of this thread.
fn spent() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap()
}

#[tokio::test(start_paused = true)]
async fn merged_parents_are_ending_and_child_is_waiting() {
    let fleet = Fleet::new(3, 1).await;
    let stream = SimStream::new(3);
    let [one, other] = [0, 1].map(|shard| stream.open_shards()[shard].id.clone());
    let child = stream.merge(&one, &other).unwrap();
    let child = stream.open_shards().into_iter().find(|shard| shard.id == child).unwrap();
    let key = |shard| fleet.application.shard(&ShardName { stream: None, shard });
    let attributes = row::new_row(&child, &Position::TrimHorizon);
    assert!(fleet.table.create(&key(child.id), &attributes).await.unwrap());

    let snapshot = Snapshot::take(&fleet.table, &fleet.application, &mut LogThrottles::default())
        .await
        .unwrap();
    let reshaping = snapshot.reshaping();

    assert_eq!(reshaping.ending, BTreeSet::from([key(one), key(other)]));
    assert_eq!(reshaping.waiting, 1);
}

/// Workers of KCL, unlike ours, also hold shards that wait for their parents.
#[tokio::test(start_paused = true)]
async fn shards_of_foreign_workers_do_not_count_as_ending() {
    let stream = SimStream::new(2);
    let [one, other] = [0, 1].map(|shard| stream.open_shards()[shard].id.clone());
    stream.merge(&one, &other).unwrap();
    let (application, table): (Application, _) = ("shop".parse().unwrap(), MemoryStore::new());
    let mut fleet = Fleet { application, table, leases: Vec::new() };
    let (_, locker) = fleet.locker(0);
    for shard in stream.shards().await.unwrap() {
        let key = fleet.application.shard(&ShardName { stream: None, shard: shard.id.clone() });
        let mut attributes = row::new_row(&shard, &Position::TrimHorizon);
        if shard.id != one {
            attributes.insert(row::OWNER.to_owned(), "kcl".into());
        }
        assert!(fleet.table.create(&key, &attributes).await.unwrap());
        fleet.obtain(&locker, &key).await;
    }

    let snapshot = Snapshot::take(&fleet.table, &fleet.application, &mut LogThrottles::default())
        .await
        .unwrap();
    let reshaping = snapshot.reshaping();

    let passing = fleet.application.shard(&ShardName { stream: None, shard: one });
    assert_eq!(reshaping.ending, BTreeSet::from([passing]));
    assert_eq!(reshaping.waiting, 0);
}

/// Another program may have written a row that is not a lease.
#[tokio::test]
async fn unreadable_row_is_logged_and_other_rows_are_read() {
    let application: Application = "shop".parse().unwrap();
    let table = MemoryStore::new();
    let mut keys = BTreeSet::new();
    let shards = SimStream::new(3).open_shards();
    for shard in &shards {
        let key = application.shard(&ShardName { stream: None, shard: shard.id.clone() });
        let mut attributes = row::new_row(shard, &Position::TrimHorizon);
        if shard.id == shards[1].id {
            attributes.insert(row::CHECKPOINT.to_owned(), 7.into());
        } else {
            keys.insert(key.clone());
        }
        assert!(table.create(&key, &attributes).await.unwrap());
    }
    let (captured, _listening) = Warnings::listen_from(tracing::Level::INFO);

    let snapshot =
        Snapshot::take(&table, &application, &mut LogThrottles::default()).await.unwrap();

    assert_eq!(snapshot.placement(|_row| true).into_keys().collect::<BTreeSet<_>>(), keys);
    let log = captured.text();
    assert!(log.contains("WARN") && log.contains(shards[1].id.as_str()), "{log}");
    assert_eq!(log.lines().count(), 1, "{log}");
}

const WORKERS: usize = 50;

/// On an idle machine, this number of rounds is enough for an undisturbed tick.
const MIN_ROUNDS: u32 = 40;
/// A debug build needs half a minute for these rounds.
const MAX_ROUNDS: u32 = 1000;
