//! Real workers in virtual time on one table and one stream, with a log of their events.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use lease_core::conformance::SkewedClock;
use lease_core::conformance::{Fault, Faulty, ProcessId, Simulation};
use lease_core::store::{Clock, LeaseTable, LockStore};
use lease_core::{FencingToken, Holder, LeaseKey};
use lease_kinesis::{
    InitialPosition, ProcessorFactory, Shard, ShardId, SimStream, Source, Worker, WorkerBuilder,
    WorkerHandle,
};
use lease_memory::MemoryStore;
use lease_test_servers::simulation::RemoteStream;

use crate::log::{Log, LoggingProcessor};
use crate::mode;

pub(crate) const TTL: Duration = Duration::from_secs(10);

pub(crate) struct SimulatedFleet {
    pub(crate) simulation: Simulation,
    pub(crate) stream: SimStream,
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) log: Log,
    pub(crate) workers: BTreeMap<String, Started>,
    /// The number of earlier starts under each name. Each process needs a seed of its own, since a store takes
    /// equal nonces for one claim.
    starts: BTreeMap<String, u64>,
}

pub(crate) struct Started {
    process: ProcessId,
    pub(crate) handle: WorkerHandle,
    pub(crate) connection: Faulty<Arc<MemoryStore>>,
    result: Arc<Mutex<Option<Result<(), String>>>>,
}

impl SimulatedFleet {
    pub(crate) fn new(seed: u64, shards: u16) -> Self {
        let simulation = Simulation::new(seed);
        let (stream, store) =
            simulation.on_network(|| (SimStream::new(shards), MemoryStore::new()));
        let log = Log::new(simulation.time());
        let (workers, starts) = (BTreeMap::new(), BTreeMap::new());
        Self { simulation, stream, store: Arc::new(store), log, workers, starts }
    }

    pub(crate) fn start(&mut self, name: &str) {
        let log = self.log.of(name);
        self.start_with(
            name,
            move |shard: &_| LoggingProcessor::new(log.clone(), shard),
            |worker| worker,
        );
    }

    pub(crate) fn start_with(
        &mut self,
        name: &str,
        factory: impl ProcessorFactory,
        set_up: impl FnOnce(WorkerBuilder) -> WorkerBuilder,
    ) {
        self.start_in_mode(name, factory, |worker| set_up(mode::set(worker)));
    }

    /// `set_up` also sets the mode.
    pub(crate) fn start_in_mode(
        &mut self,
        name: &str,
        factory: impl ProcessorFactory,
        set_up: impl FnOnce(WorkerBuilder) -> WorkerBuilder,
    ) {
        let network = self.simulation.network().clone();
        let connection = Faulty::new(Arc::clone(&self.store))
            .carried_by(network.clone())
            .with_latency(Simulation::LATENCY);
        let source = RemoteStream::new(self.stream.clone(), network.clone());
        let (stream, table) = (self.stream.clone(), connection.clone());
        // The time of a process's runtime begins at the start of the process.
        let wall_clock = move || {
            let _network = network.enter();
            stream.wall_clock()
        };
        let result = Arc::new(Mutex::new(None));
        let ended = Arc::clone(&result);
        let mut parts = None;
        let name = name.to_owned();
        let starts = self.starts.entry(name.clone()).or_default();
        let seed = u64::from(name.bytes().map(u32::from).sum::<u32>()) + *starts * 1_000_000;
        *starts += 1;
        let process = self.simulation.start(|_| {
            let clock = Arc::new(SkewedClock::new(Duration::ZERO, 1.0));
            let own_clock: Arc<dyn Clock> = Arc::<SkewedClock>::clone(&clock);
            let builder = Worker::builder("shop", table, source, factory)
                .with_name(name.parse().unwrap())
                .with_initial_position(InitialPosition::TrimHorizon)
                .with_clock(own_clock)
                .with_wall_clock(wall_clock)
                .with_seed(seed);
            let worker = set_up(builder).build().unwrap();
            parts = Some(worker.handle());
            async move {
                let result = worker.run().await;
                *ended.lock().unwrap() = Some(result.map_err(|error| error.to_string()));
            }
        });
        let handle = parts.unwrap();
        self.workers.insert(name, Started { process, handle, connection, result });
    }

    pub(crate) fn until(&mut self, what: &str, limit: Duration, done: impl Fn(&Self) -> bool) {
        let end = self.simulation.now() + limit;
        while !done(self) {
            assert!(self.simulation.now() < end, "not within {limit:?}: {what}\n{}", self.log);
            self.simulation.step();
        }
    }

    pub(crate) fn run_for(&mut self, time: Duration) {
        self.simulation.run_for(time);
    }

    pub(crate) fn shares(&self) -> BTreeMap<&str, usize> {
        let shards = |worker: &Started| worker.handle.status().shards.len();
        self.workers.iter().map(|(name, worker)| (name.as_str(), shards(worker))).collect()
    }

    pub(crate) fn until_shared(&mut self, shares: &[(&str, usize)]) {
        let wanted: BTreeMap<_, _> = shares.iter().copied().collect();
        self.until(&format!("shares {wanted:?}"), TTL * 6, |fleet| fleet.shares() == wanted);
    }

    pub(crate) fn put(&self, count: usize) {
        let first = self.stream.everything_put().len();
        self.simulation.on_network(|| {
            for number in first..first + count {
                self.stream.put(&format!("key-{}", number % 50), number.to_string());
            }
        });
    }

    pub(crate) fn until_all_is_read(&mut self) {
        let put = self.stream.everything_put().len();
        self.until("all is read", TTL * 60, |fleet| fleet.log.distinct() >= put);
        self.log.is_complete_and_in_order(&self.stream);
    }

    pub(crate) fn stop(&mut self, name: &str) -> Result<(), String> {
        self.workers[name].handle.stop();
        self.until_ended(name)
    }

    pub(crate) fn until_ended(&mut self, name: &str) -> Result<(), String> {
        let what = format!("{name} has ended");
        self.until(&what, TTL * 10, |fleet| fleet.workers[name].result.lock().unwrap().is_some());
        let worker = self.workers.remove(name).unwrap();
        self.simulation.kill(worker.process);
        let result = worker.result.lock().unwrap().take();
        result.unwrap()
    }

    /// The worker's pending requests are never sent.
    pub(crate) fn kill(&mut self, name: &str) {
        let worker = self.workers.remove(name).unwrap();
        worker.connection.choose(|_| Some(Fault::Hang));
        self.simulation.kill(worker.process);
    }

    pub(crate) fn pause(&mut self, name: &str) {
        self.simulation.pause(self.workers[name].process);
    }

    pub(crate) fn resume(&mut self, name: &str) {
        self.simulation.resume(self.workers[name].process);
    }

    pub(crate) fn split(&self, shard: &Shard) -> (ShardId, ShardId) {
        let (first, last) = (shard.hash_keys.first(), shard.hash_keys.last());
        let middle = first + (last - first) / 2;
        self.simulation.on_network(|| self.stream.split(&shard.id, middle)).unwrap()
    }

    pub(crate) fn open_shards(&self) -> Vec<Shard> {
        self.stream.open_shards()
    }

    pub(crate) fn lineage(&self) -> Vec<(ShardId, Vec<ShardId>)> {
        let listed = self.stream.shards().now_or_never().unwrap().unwrap();
        listed.into_iter().map(|shard| (shard.id, shard.parents)).collect()
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows_below("shop/shards/")
    }

    pub(crate) fn rows_of_workers(&self) -> usize {
        self.rows_below("shop/workers/")
    }

    fn rows_below(&self, prefix: &str) -> usize {
        self.simulation.on_network(|| {
            let rows = self.store.list(prefix).collect::<Vec<_>>();
            rows.now_or_never().unwrap().len()
        })
    }

    pub(crate) fn holder(&self, key: &LeaseKey) -> Option<Holder> {
        self.simulation.on_network(|| self.store.holder(key).now_or_never()).unwrap().unwrap()
    }

    pub(crate) fn evict(&self, key: &LeaseKey, token: FencingToken) -> bool {
        self.simulation
            .on_network(|| self.store.evict(key, &token.into()).now_or_never())
            .unwrap()
            .unwrap()
    }
}
