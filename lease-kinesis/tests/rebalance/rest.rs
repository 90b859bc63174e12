//! What a fleet under sessions reads and writes while nothing changes, and while workers are replaced.
//!
//! The full sizes take minutes: `cargo test --release -p lease-kinesis --test rebalance rest:: -- --ignored
//! --nocapture`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use lease_kinesis::{
    Batch, Checkpointer, InitialPosition, Outcome, ProcessorError, RecordProcessor, ShardContext,
    ShardId, SimStream, TableUse, Worker, WorkerHandle, WorkerMetrics,
};
use lease_memory::MemoryStore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::counted_table::{CountedTable, Traffic};
use crate::fleet::Costs;

struct Idle {
    shard: ShardId,
    gaps: Arc<Mutex<Gaps>>,
}

/// The times without a reader.
#[derive(Default)]
struct Gaps {
    stopped: BTreeMap<ShardId, Instant>,
    longest: Duration,
}

impl Drop for Idle {
    fn drop(&mut self) {
        self.gaps.lock().unwrap().stopped.insert(self.shard.clone(), now());
    }
}

#[async_trait]
impl RecordProcessor for Idle {
    async fn initialize(&mut self, _: &ShardContext) -> Result<(), ProcessorError> {
        let mut gaps = self.gaps.lock().unwrap();
        if let Some(stopped) = gaps.stopped.remove(&self.shard) {
            gaps.longest = gaps.longest.max(stopped.elapsed());
        }
        Ok(())
    }

    async fn process_records(&mut self, _batch: &Batch, _checkpointer: &Checkpointer) -> Outcome {
        Outcome::Continue
    }
}

struct Fleet {
    store: MemoryStore,
    stream: SimStream,
    handles: BTreeMap<usize, WorkerHandle>,
    traffic: Arc<Mutex<Traffic>>,
    gaps: Arc<Mutex<Gaps>>,
    running: JoinSet<()>,
    used: Option<Arc<Used>>,
}

/// What the workers report of their own requests.
#[derive(Debug, Default)]
struct Used(Mutex<Vec<TableUse>>);

impl WorkerMetrics for Used {
    fn table_used(&self, used: &TableUse) {
        self.0.lock().unwrap().push(*used);
    }
}

impl Used {
    fn sum(&self, number: impl Fn(&TableUse) -> u64) -> u64 {
        self.0.lock().unwrap().iter().map(number).sum()
    }
}

impl Fleet {
    fn start(workers: usize, shards: u16) -> Self {
        Self::start_with(workers, shards, None)
    }

    fn start_with(workers: usize, shards: u16, used: Option<Arc<Used>>) -> Self {
        let (store, stream) = (MemoryStore::new(), SimStream::new(shards));
        let (traffic, gaps, running) = (Arc::default(), Arc::default(), JoinSet::new());
        let mut fleet =
            Self { store, stream, handles: BTreeMap::new(), traffic, gaps, running, used };
        for number in 0..workers {
            fleet.join(number);
        }
        fleet
    }

    fn join(&mut self, number: usize) {
        let table = CountedTable::direct(self.store.clone(), Arc::clone(&self.traffic));
        let gaps = Arc::clone(&self.gaps);
        let factory = move |shard: &ShardContext| Idle {
            shard: shard.shard.clone(),
            gaps: Arc::clone(&gaps),
        };
        let mut worker = Worker::builder("shop", table, self.stream.clone(), factory)
            .with_name(format!("worker-{number}").parse().unwrap())
            .with_seed(number as u64)
            .with_initial_position(InitialPosition::TrimHorizon)
            // The reads of the stream are not measured.
            .with_idle_pause(Duration::from_hours(1))
            .with_session();
        if let Some(used) = &self.used {
            worker = worker.with_metrics(Arc::clone(used) as _);
        }
        let worker = worker.build().unwrap();
        self.handles.insert(number, worker.handle());
        self.running.spawn(async { worker.run().await.unwrap() });
    }

    fn leave(&mut self, number: usize) {
        self.handles.remove(&number).unwrap().stop();
    }

    /// The most read units of one second, during `seconds`.
    async fn peak(&self, seconds: u32) -> f64 {
        let mut peak = 0;
        for _second in 0..seconds {
            let before = self.costs().half_units;
            sleep(Duration::from_secs(1)).await;
            peak = peak.max(self.costs().half_units - before);
        }
        crate::whole(peak) / 2.0
    }

    async fn until_shared(&self, shards: usize) {
        for second in 0.. {
            let shares: Vec<_> =
                self.handles.values().map(|handle| handle.status().shards.len()).collect();
            let different: BTreeSet<_> = shares.iter().collect();
            let most_different = if shards.is_multiple_of(shares.len()) { 1 } else { 2 };
            let is_even = different.len() <= most_different;
            if shares.iter().sum::<usize>() == shards && is_even {
                return;
            }
            sleep(Duration::from_secs(1)).await;
            assert!(second < 600, "the shards are not shared after ten minutes: {shares:?}");
        }
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
    let units = per_second(after.half_units - before.half_units) / 2.0;
    println!(
        "{workers} workers, {shards} shards at rest: {rows:.1} rows/s, {units:.1} read units/s, \
         {writes:.2} writes/s"
    );
    (rows, writes)
}

/// The sizes of rows are estimated twice: by the worker, and by this test.
#[tokio::test(start_paused = true)]
async fn workers_report_what_their_table_counts() {
    let used = Arc::<Used>::default();
    let mut fleet = Fleet::start_with(5, 50, Some(Arc::clone(&used)));
    fleet.until_shared(50).await;
    sleep(Duration::from_mins(5)).await;

    fleet.handles.values().for_each(WorkerHandle::stop);
    while let Some(ended) = fleet.running.join_next().await {
        ended.unwrap();
    }

    let costs = fleet.costs();
    assert_eq!(used.sum(|used| used.rows_read), costs.reads);
    assert_eq!(used.sum(|used| used.writes), costs.writes);
    // Each worker may keep one half of a unit.
    let half_units = used.sum(|used| used.read_units) * 2;
    assert!(half_units <= costs.half_units && costs.half_units <= half_units + 5, "{half_units}");
    // A row with many notices takes more than one unit.
    let units = used.sum(|used| used.write_units);
    assert!(costs.writes <= units && units <= costs.writes * 2, "{units} of {}", costs.writes);
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

/// Replaces a few workers, one each half minute. Returns the most read units of a second, and the longest time of a
/// shard without a reader.
async fn deploy(workers: usize, shards: u16) -> (f64, Duration) {
    let mut fleet = Fleet::start(workers, shards);
    fleet.until_shared(usize::from(shards)).await;
    sleep(Duration::from_mins(3)).await;

    let (before, mut peak) = (fleet.costs(), 0.0_f64);
    for old in 0..REPLACED {
        fleet.join(workers + old);
        peak = peak.max(fleet.peak(15).await);
        fleet.leave(old);
        peak = peak.max(fleet.peak(15).await);
    }
    let after = fleet.costs();

    let seconds = 30.0 * crate::whole(REPLACED as u64);
    let units = crate::whole(after.half_units - before.half_units) / 2.0 / seconds;
    let writes = crate::whole(after.writes - before.writes) / seconds;
    fleet.until_shared(usize::from(shards)).await;
    let longest = fleet.gaps.lock().unwrap().longest;
    println!(
        "{workers} workers, {shards} shards in a deploy: {units:.0} read units/s, at most {peak:.0}, \
         {writes:.1} writes/s, {longest:?} without a reader"
    );
    (peak, longest)
}

#[tokio::test(start_paused = true)]
#[ignore = "takes minutes in a release build"]
async fn deploy_of_fifty_under_sessions() {
    let (peak, longest) = deploy(50, 1_000).await;

    assert!(peak < 3_000.0, "{peak} read units in a second");
    assert!(longest <= LONGEST_GAP, "{longest:?}");
}

/// One partition of `DynamoDB` gives 3,000 read units per second.
#[tokio::test(start_paused = true)]
#[ignore = "takes minutes in a release build"]
async fn deploy_of_two_hundred_under_sessions() {
    let (peak, longest) = deploy(200, 10_000).await;

    assert!(peak < 3_000.0, "{peak} read units in a second");
    assert!(longest <= LONGEST_GAP, "{longest:?}");
}

/// A tick, and the requests of a hand-over.
const LONGEST_GAP: Duration = Duration::from_secs(4);

#[expect(clippy::disallowed_methods, reason = "a measurement; no lease depends on it")]
fn now() -> Instant {
    Instant::now()
}

const REPLACED: usize = 4;
