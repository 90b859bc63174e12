//! Workers that are as independent as processes: each worker has its own thread and runtime.

use std::collections::BTreeMap;
use std::time::Duration;

use lease_core::LeaseOptions;
use lease_kinesis::{
    InitialPosition, Retrieval, ShardContext, Worker, WorkerBuilder, WorkerError, WorkerHandle,
};
use lease_test_servers::stream::Put;
use lease_test_servers::stream::Stream;
use tokio::runtime::Builder;
use tokio::select;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{sleep, timeout};

use crate::log::{Log, Noting};
use crate::table::{Place, Table};

pub(crate) struct Fleet<'a> {
    table: Table,
    stream: &'a Stream,
    retrieval: Retrieval,
    mode: Mode,
    ttl: Duration,
    pub(crate) log: Log,
    workers: BTreeMap<&'static str, Started>,
}

/// How the workers hold their shards.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Mode {
    /// Each shard has heartbeats.
    Lists,
    /// The shards of a worker are under its session.
    Session,
}

struct Started {
    handle: WorkerHandle,
    orders: mpsc::UnboundedSender<Order>,
    ended: JoinHandle<Option<Result<(), WorkerError>>>,
}

/// What happens to the process of a worker.
enum Order {
    Kill,
    /// The thread stops for this time, as in a suspended machine.
    Freeze(Duration),
}

impl<'a> Fleet<'a> {
    pub(crate) fn new(table: Table, stream: &'a Stream, retrieval: Retrieval, mode: Mode) -> Self {
        let (log, workers) = (Log::default(), BTreeMap::new());
        Self { table, stream, retrieval, mode, ttl: TTL, log, workers }
    }

    pub(crate) fn with_ttl(self, ttl: Duration) -> Self {
        Self { ttl, ..self }
    }

    pub(crate) fn place(&self) -> Place {
        self.table.place.clone()
    }

    pub(crate) fn names(&self) -> Vec<&'static str> {
        self.workers.keys().copied().collect()
    }

    pub(crate) async fn start(&mut self, name: &'static str) {
        self.start_at(name, self.place()).await;
    }

    /// `place` may be behind a proxy.
    pub(crate) async fn start_at(&mut self, name: &'static str, place: Place) {
        let (source, log) = (self.stream.source(), self.log.of(name));
        let (retrieval, mode, ttl) = (self.retrieval, self.mode, self.ttl);
        let (started, handle) = oneshot::channel();
        let (orders, mut ordered) = mpsc::unbounded_channel();
        let ended = spawn_blocking(move || {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let table = place.open().await;
                let factory = move |shard: &ShardContext| Noting::new(log.clone(), shard);
                let builder = Worker::builder("shop", table, source, factory);
                let worker = hasty(builder, name, retrieval, mode, ttl).build().unwrap();
                drop(started.send(worker.handle()));
                let mut run = tokio::spawn(worker.run());
                loop {
                    select! {
                        biased;
                        order = ordered.recv() => match order {
                            Some(Order::Freeze(length)) => std::thread::sleep(length),
                            // Drops the runtime with all tasks, so that no lease is handed over.
                            Some(Order::Kill) | None => return None,
                        },
                        ended = &mut run => return Some(ended.unwrap()),
                    }
                }
            })
        });
        let handle = handle.await.unwrap();
        self.workers.insert(name, Started { handle, orders, ended });
    }

    pub(crate) async fn kill(&mut self, name: &str) {
        let worker = self.workers.remove(name).unwrap();
        worker.orders.send(Order::Kill).ok().unwrap();
        assert!(worker.ended.await.unwrap().is_none(), "the worker had ended");
    }

    pub(crate) fn freeze(&self, name: &str, length: Duration) {
        self.workers[name].orders.send(Order::Freeze(length)).ok().unwrap();
    }

    pub(crate) async fn stop(&mut self, name: &str) {
        let worker = self.workers.remove(name).unwrap();
        worker.handle.stop();
        let ended = timeout(LIMIT, worker.ended).await.expect("the worker stops in time");
        ended.unwrap().expect("the worker was not killed").unwrap();
    }

    /// Waits until each of the `count` open shards has one worker, and the shares differ by at most
    /// one.
    pub(crate) async fn until_shared(&self, count: usize) {
        let open = self.stream.open_shards().await;
        assert_eq!(open.len(), count);
        let mut open: Vec<_> = open.into_iter().map(|shard| shard.id).collect();
        open.sort();
        let shared = || {
            let statuses = self.workers.values().map(|worker| worker.handle.status().shards);
            let shares: Vec<_> = statuses.collect();
            let lengths = shares.iter().map(Vec::len);
            let even = lengths.clone().max().unwrap() - lengths.min().unwrap() <= 1;
            let mut read: Vec<_> = shares.into_iter().flatten().map(|shard| shard.shard).collect();
            read.sort();
            even && read == open
        };
        self.until("all shards are shared", shared).await;
    }

    pub(crate) async fn until_all_is_read(&self, put: &Put) {
        let all: usize = put.values().sum();
        self.until("all records are read", || self.log.distinct() >= all).await;
    }

    async fn until(&self, what: &str, so: impl Fn() -> bool + Send + Sync) {
        let waiting = async {
            while !so() {
                sleep(Duration::from_millis(20)).await;
            }
        };
        if timeout(LIMIT, waiting).await.is_err() {
            let statuses = self.workers.iter().map(|(name, it)| (name, it.handle.status()));
            let statuses: Vec<_> = statuses.collect();
            panic!("not within {LIMIT:?}: {what}\n{statuses:#?}\n{}", self.log);
        }
    }
}

fn hasty(
    builder: WorkerBuilder,
    name: &str,
    retrieval: Retrieval,
    mode: Mode,
    ttl: Duration,
) -> WorkerBuilder {
    let builder = match mode {
        Mode::Lists => builder,
        Mode::Session => builder.with_session(),
    };
    builder
        .with_name(name.parse().unwrap())
        .with_options(LeaseOptions::new(ttl).unwrap())
        .with_initial_position(InitialPosition::TrimHorizon)
        .with_idle_pause(Duration::from_millis(200))
        .with_retrieval(retrieval)
}

/// Longer than the pauses of a busy machine.
const TTL: Duration = Duration::from_secs(20);

/// A busy machine needs much less for each step.
const LIMIT: Duration = Duration::from_mins(5);
