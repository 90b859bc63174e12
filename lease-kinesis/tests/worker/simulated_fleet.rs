//! A fleet of real workers in virtual time, on one table and one stream, and all that it does.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use lease_core::conformance::{Fault, Faulty, ProcessId, Simulation};
use lease_core::{Clock, FencingToken, Holder, LeaseKey, LeaseTable, LockStore, SkewedClock};
use lease_kinesis::{
    InitialPosition, ProcessorFactory, Shard, ShardId, SimStream, Source, Worker, WorkerBuilder,
    WorkerHandle,
};
use lease_memory::MemoryStore;

use crate::carried::Carried;
use crate::log::{Log, Noting};

pub(crate) const TTL: Duration = Duration::from_secs(10);

/// Workers, each a process of its own, that may be paused and killed.
pub(crate) struct World {
    pub(crate) simulation: Simulation,
    pub(crate) stream: SimStream,
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) log: Log,
    pub(crate) workers: BTreeMap<String, Started>,
}

/// A worker that was started.
pub(crate) struct Started {
    process: ProcessId,
    pub(crate) handle: WorkerHandle,
    /// Its way to the table.
    pub(crate) way: Faulty<Arc<MemoryStore>>,
    result: Arc<Mutex<Option<Result<(), String>>>>,
}

impl World {
    pub(crate) fn new(seed: u64, shards: u16) -> Self {
        let simulation = Simulation::new(seed);
        let (stream, store) =
            simulation.on_network(|| (SimStream::new(shards), MemoryStore::new()));
        let log = Log::new(simulation.time());
        Self { simulation, stream, store: Arc::new(store), log, workers: BTreeMap::new() }
    }

    /// Starts a worker whose processors note what they are given, and checkpoint it.
    pub(crate) fn start(&mut self, name: &str) {
        let log = self.log.of(name);
        self.start_with(name, move |shard: &_| Noting::new(log.clone(), shard), |worker| worker);
    }

    pub(crate) fn start_with(
        &mut self,
        name: &str,
        factory: impl ProcessorFactory,
        set_up: impl FnOnce(WorkerBuilder) -> WorkerBuilder,
    ) {
        let network = self.simulation.network().clone();
        let way = Faulty::new(Arc::clone(&self.store))
            .carried_by(network.clone())
            .with_latency(Simulation::LATENCY);
        let source = Carried { stream: self.stream.clone(), network: network.clone() };
        let (stream, table) = (self.stream.clone(), way.clone());
        // True time: a process that begins late has a runtime whose own time begins late.
        let wall_clock = move || {
            let _there = network.enter();
            stream.wall_clock()
        };
        let result = Arc::new(Mutex::new(None));
        let told = Arc::clone(&result);
        let mut parts = None;
        let name = name.to_owned();
        let process = self.simulation.start(|_| {
            let clock = Arc::new(SkewedClock::new(Duration::ZERO, 1.0));
            let own_clock: Arc<dyn Clock> = Arc::<SkewedClock>::clone(&clock);
            let builder = Worker::builder("shop", table, source, factory)
                .with_name(name.parse().unwrap())
                .with_initial_position(InitialPosition::TrimHorizon)
                .with_clock(own_clock)
                .with_wall_clock(wall_clock)
                .with_seed(u64::from(name.bytes().map(u32::from).sum::<u32>()));
            let worker = set_up(builder).build().unwrap();
            parts = Some(worker.handle());
            async move {
                let result = worker.run().await;
                *told.lock().unwrap() = Some(result.map_err(|error| error.to_string()));
            }
        });
        let handle = parts.unwrap();
        self.workers.insert(name, Started { process, handle, way, result });
    }

    /// Lets time pass until `done`; fails, saying `what`, where that takes longer than `limit`.
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

    /// How many shards each worker reads, as it says itself.
    pub(crate) fn shares(&self) -> BTreeMap<&str, usize> {
        let shards = |worker: &Started| worker.handle.status().shards.len();
        self.workers.iter().map(|(name, worker)| (name.as_str(), shards(worker))).collect()
    }

    /// Waits until the workers have these shares.
    pub(crate) fn until_shared(&mut self, shares: &[(&str, usize)]) {
        let wanted: BTreeMap<_, _> = shares.iter().copied().collect();
        self.until(&format!("shares {wanted:?}"), TTL * 6, |world| world.shares() == wanted);
    }

    /// Puts `count` records, each under one of 50 partition keys.
    pub(crate) fn put(&self, count: usize) {
        let first = self.stream.everything_put().len();
        self.simulation.on_network(|| {
            for number in first..first + count {
                self.stream.put(&format!("key-{}", number % 50), number.to_string());
            }
        });
    }

    /// Waits until all that was put was worked on, in order.
    pub(crate) fn until_all_is_read(&mut self) {
        let put = self.stream.everything_put().len();
        self.until("all is read", TTL * 60, |world| world.log.distinct() >= put);
        self.log.is_complete_and_in_order(&self.stream);
    }

    pub(crate) fn stop(&mut self, name: &str) -> Result<(), String> {
        self.workers[name].handle.stop();
        self.until_ended(name)
    }

    pub(crate) fn until_ended(&mut self, name: &str) -> Result<(), String> {
        let what = format!("{name} has ended");
        self.until(&what, TTL * 10, |world| world.workers[name].result.lock().unwrap().is_some());
        let worker = self.workers.remove(name).unwrap();
        self.simulation.kill(worker.process);
        let result = worker.result.lock().unwrap().take();
        result.unwrap()
    }

    /// It is gone, and nothing that it was about to do is done.
    pub(crate) fn kill(&mut self, name: &str) {
        let worker = self.workers.remove(name).unwrap();
        worker.way.choose(|_| Some(Fault::Hang));
        self.simulation.kill(worker.process);
    }

    pub(crate) fn pause(&mut self, name: &str) {
        self.simulation.pause(self.workers[name].process);
    }

    pub(crate) fn resume(&mut self, name: &str) {
        self.simulation.resume(self.workers[name].process);
    }

    pub(crate) fn open_shards(&self) -> Vec<Shard> {
        self.stream.open_shards()
    }

    /// The parents of each shard that is listed.
    pub(crate) fn lineage(&self) -> Vec<(ShardId, Vec<ShardId>)> {
        let listed = self.stream.shards().now_or_never().unwrap().unwrap();
        listed.into_iter().map(|shard| (shard.id, shard.parents)).collect()
    }

    /// How many shards have a row.
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
        self.simulation.on_network(|| self.store.evict(key, token).now_or_never()).unwrap().unwrap()
    }
}
