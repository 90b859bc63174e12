//! What a fleet under sessions reads and writes while nothing changes.
//!
//! The full sizes take minutes: `cargo test --release -p lease-kinesis --test rebalance rest:: -- --ignored
//! --nocapture`.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use lease_kinesis::{
    Batch, Checkpointer, InitialPosition, Outcome, RecordProcessor, ShardContext, SimStream,
    Worker, WorkerHandle,
};
use lease_memory::MemoryStore;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::counted_table::{CountedTable, Traffic};
use crate::fleet::Costs;

struct Idle;

#[async_trait]
impl RecordProcessor for Idle {
    async fn process_records(&mut self, _batch: &Batch, _checkpointer: &Checkpointer) -> Outcome {
        Outcome::Continue
    }
}

struct Fleet {
    handles: Vec<WorkerHandle>,
    traffic: Arc<Mutex<Traffic>>,
    _running: JoinSet<()>,
}

impl Fleet {
    fn start(workers: usize, shards: u16) -> Self {
        let (store, stream) = (MemoryStore::new(), SimStream::new(shards));
        let traffic = Arc::<Mutex<Traffic>>::default();
        let (mut handles, mut running) = (Vec::new(), JoinSet::new());
        for number in 0..workers {
            let table = CountedTable::direct(store.clone(), Arc::clone(&traffic));
            let worker = Worker::builder("shop", table, stream.clone(), |_: &ShardContext| Idle)
                .with_name(format!("worker-{number}").parse().unwrap())
                .with_seed(number as u64)
                .with_initial_position(InitialPosition::TrimHorizon)
                // The reads of the stream are not measured.
                .with_idle_pause(Duration::from_hours(1))
                .with_session()
                .build()
                .unwrap();
            handles.push(worker.handle());
            running.spawn(async { worker.run().await.unwrap() });
        }
        Self { handles, traffic, _running: running }
    }

    async fn until_shared(&self, shards: usize) {
        for _second in 0..600 {
            let shares: Vec<_> =
                self.handles.iter().map(|handle| handle.status().shards.len()).collect();
            let different: BTreeSet<_> = shares.iter().collect();
            if shares.iter().sum::<usize>() == shards && different.len() == 1 {
                return;
            }
            sleep(Duration::from_secs(1)).await;
        }
        panic!("the shards are not shared after ten minutes");
    }

    fn costs(&self) -> Costs {
        self.traffic.lock().unwrap().costs
    }
}

/// Returns the rows and the writes per second over ten minutes.
async fn at_rest(workers: usize, shards: u16) -> (f64, f64) {
    let fleet = Fleet::start(workers, shards);
    fleet.until_shared(usize::from(shards)).await;
    // Each worker lists the rows for a second time, and forgets its notices.
    sleep(Duration::from_mins(5)).await;

    let before = fleet.costs();
    sleep(Duration::from_mins(10)).await;
    let after = fleet.costs();

    let per_second = |count: u64| crate::whole(count) / 600.0;
    let (rows, writes) =
        (per_second(after.reads - before.reads), per_second(after.writes - before.writes));
    println!("{workers} workers, {shards} shards: {rows:.1} rows/s, {writes:.2} writes/s");
    (rows, writes)
}

#[tokio::test(start_paused = true)]
async fn small_fleet_under_sessions_reads_and_writes_little_at_rest() {
    let (rows, writes) = at_rest(10, 100).await;

    assert!(rows <= 14.0 && writes <= 3.3, "{rows} rows/s, {writes} writes/s");
}

#[tokio::test(start_paused = true)]
#[ignore = "takes a minute in a release build"]
async fn fleet_of_fifty_under_sessions_at_rest() {
    let (rows, writes) = at_rest(50, 1_000).await;

    assert!(rows <= 100.0 && writes <= 16.0, "{rows} rows/s, {writes} writes/s");
}

#[tokio::test(start_paused = true)]
#[ignore = "takes minutes in a release build"]
async fn fleet_of_two_hundred_under_sessions_at_rest() {
    let (rows, writes) = at_rest(200, 10_000).await;

    assert!(rows <= 500.0 && writes <= 62.0, "{rows} rows/s, {writes} writes/s");
}
