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
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{sleep, timeout};

use crate::log::{Log, Noting};
use crate::table::Table;

pub(crate) struct Fleet<'a> {
    table: Table,
    stream: &'a Stream,
    retrieval: Retrieval,
    mode: Mode,
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
    kill: oneshot::Sender<()>,
    ended: JoinHandle<Option<Result<(), WorkerError>>>,
}

impl<'a> Fleet<'a> {
    pub(crate) fn new(table: Table, stream: &'a Stream, retrieval: Retrieval, mode: Mode) -> Self {
        Self { table, stream, retrieval, mode, log: Log::default(), workers: BTreeMap::new() }
    }

    pub(crate) async fn start(&mut self, name: &'static str) {
        let (place, source) = (self.table.place.clone(), self.stream.source());
        let (log, retrieval, mode) = (self.log.of(name), self.retrieval, self.mode);
        let (started, handle) = oneshot::channel();
        let (kill, killed) = oneshot::channel();
        let ended = spawn_blocking(move || {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let table = place.open().await;
                let factory = move |shard: &ShardContext| Noting::new(log.clone(), shard);
                let builder = Worker::builder("shop", table, source, factory);
                let worker = hasty(builder, name, retrieval, mode).build().unwrap();
                drop(started.send(worker.handle()));
                let run = tokio::spawn(worker.run());
                select! {
                    biased;
                    // Drops the runtime with all tasks, so that no lease is handed over.
                    _ = killed => None,
                    ended = run => Some(ended.unwrap()),
                }
            })
        });
        let handle = handle.await.unwrap();
        self.workers.insert(name, Started { handle, kill, ended });
    }

    pub(crate) async fn kill(&mut self, name: &str) {
        let worker = self.workers.remove(name).unwrap();
        worker.kill.send(()).unwrap();
        assert!(worker.ended.await.unwrap().is_none(), "the worker had ended");
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

/// The ttl is longer than the pauses of a busy machine.
fn hasty(builder: WorkerBuilder, name: &str, retrieval: Retrieval, mode: Mode) -> WorkerBuilder {
    let builder = match mode {
        Mode::Lists => builder,
        Mode::Session => builder.with_session(),
    };
    builder
        .with_name(name.parse().unwrap())
        .with_options(LeaseOptions::new(Duration::from_secs(20)).unwrap())
        .with_initial_position(InitialPosition::TrimHorizon)
        .with_idle_pause(Duration::from_millis(200))
        .with_retrieval(retrieval)
}

/// A busy machine needs much less for each step.
const LIMIT: Duration = Duration::from_mins(5);
