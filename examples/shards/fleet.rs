//! All workers, and what they live through together.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lease_core::LeaseOptions;
use lease_examples::Failure;
use lease_examples::deliveries::Deliveries;
use lease_examples::screen::Screen;
use lease_kinesis::{Shard, ShardId, SimStream, WorkerHandle};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{sleep, timeout};

use crate::telling::short;
use crate::worker::{Clerk, Ended, Ends, Plan, Stream, process};

/// All workers, and what they do together.
pub(crate) struct Fleet {
    pub(crate) plan: Arc<Plan>,
    pub(crate) deliveries: Deliveries,
    pub(crate) workers: BTreeMap<String, Started>,
    pub(crate) screen: Screen,
}

/// A worker that was started.
pub(crate) struct Started {
    pub(crate) handle: WorkerHandle,
    /// Whether its next batch is its last.
    doomed: Arc<AtomicBool>,
    ended: JoinHandle<Result<Ended, Failure>>,
    /// Where this is dropped, nobody waits for the worker any more.
    _wanted: oneshot::Sender<()>,
}

impl Fleet {
    pub(crate) fn new(store: String, options: LeaseOptions, stream: Stream) -> Self {
        let application = stream.application();
        let plan = Arc::new(Plan { application, store, options, stream });
        let (deliveries, screen) = (Deliveries::default(), Screen::start());
        Self { plan, deliveries, workers: BTreeMap::new(), screen }
    }

    /// All that can happen to workers and their stream.
    pub(crate) async fn live_through(
        &mut self,
        workers: usize,
        stream: &SimStream,
    ) -> Result<(), Failure> {
        for number in 1..=workers {
            self.start(number).await?;
        }
        self.tell(format_args!("{workers} workers begin"));
        self.until_shared(stream).await?;

        self.start(workers + 1).await?;
        self.tell(format_args!("worker-{} joins", workers + 1));
        self.until_shared(stream).await?;

        let doomed = self.somebody_at_work()?;
        self.kill(&doomed).await?;
        self.until_shared(stream).await?;

        self.reshape(stream)?;
        self.until_shared(stream).await?;

        self.tell("worker-1 is told to stop");
        self.stop("worker-1").await?;
        self.until_shared(stream).await
    }

    pub(crate) async fn look_on(&mut self, workers: usize) -> Result<(), Failure> {
        for number in 1..=workers {
            self.start(number).await?;
        }
        self.tell(format_args!("{workers} workers begin"));
        let mut before = self.readers();
        loop {
            self.look().await?;
            let now = self.readers();
            if now != before {
                self.tell("shards have changed hands");
                before = now;
            }
        }
    }

    async fn start(&mut self, number: usize) -> Result<(), Failure> {
        let name = format!("worker-{number}");
        let (told, handle) = oneshot::channel();
        let (kill, killed) = mpsc::channel(1);
        let doomed = Arc::new(AtomicBool::new(false));
        let is_endless = !matches!(self.plan.stream, Stream::Simulated(_));
        let deliveries = (!is_endless).then(|| self.deliveries.clone());
        let clerk = Clerk { deliveries, doomed: Arc::clone(&doomed), kill };
        let (plan, worker) = (Arc::clone(&self.plan), name.clone());
        let (wanted, unwanted) = oneshot::channel();
        let ends = Ends { killed, unwanted };
        let ended = spawn_blocking(move || process(&plan, &worker, clerk, told, ends));
        // It could not begin, and says why.
        let Ok(handle) = handle.await else { return ended.await?.map(|_ended| ()) };
        self.workers.insert(name, Started { handle, doomed, ended, _wanted: wanted });
        Ok(())
    }

    /// The first worker that reads a shard and is not to be told to stop later. Where there are more
    /// workers than shards, some have nothing in their hands with which they could be killed.
    fn somebody_at_work(&self) -> Result<String, Failure> {
        let readers = self.readers().into_iter();
        let at_work = readers.filter(|(name, shards)| name != "worker-1" && !shards.is_empty());
        let first = at_work.map(|(name, _)| name).min_by_key(|name| (name.len(), name.clone()));
        Ok(first.ok_or("nobody reads a shard but worker-1")?)
    }

    /// Has a worker killed with a batch in its hands.
    async fn kill(&mut self, name: &str) -> Result<(), Failure> {
        if let Some(worker) = self.workers.get(name) {
            worker.doomed.store(true, Ordering::SeqCst);
        }
        if let Ended::Killed { in_hand } = self.until_ended(name).await? {
            self.tell(format_args!(
                "{name} is KILLED: {in_hand} records that it has just worked on are not checkpointed"
            ));
        }
        Ok(())
    }

    async fn stop(&mut self, name: &str) -> Result<(), Failure> {
        if let Some(worker) = self.workers.get(name) {
            worker.handle.stop();
        }
        self.until_ended(name).await?;
        self.tell(format_args!("{name} has handed over everything"));
        Ok(())
    }

    pub(crate) async fn stop_all(&mut self) -> Result<(), Failure> {
        for worker in self.workers.values() {
            worker.handle.stop();
        }
        while let Some(name) = self.workers.keys().next().cloned() {
            self.until_ended(&name).await?;
        }
        self.tell("all workers have stopped");
        Ok(())
    }

    async fn until_ended(&mut self, name: &str) -> Result<Ended, Failure> {
        let is_running = |fleet: &Self| {
            fleet.workers.get(name).is_some_and(|worker| !worker.ended.is_finished())
        };
        for _ in 0..MOST_LOOKS {
            if !is_running(self) {
                break;
            }
            self.refresh().await;
        }
        let worker = self.workers.remove(name).ok_or_else(|| format!("{name} is gone"))?;
        timeout(Duration::ZERO, worker.ended)
            .await
            .map_err(|_| format!("{name} does not end"))??
    }

    /// Splits the first shard, and merges the last two.
    fn reshape(&mut self, stream: &SimStream) -> Result<(), Failure> {
        let open = by_hash_key(stream.open_shards());
        let [first, ..] = &*open else { return Err("no shard is open".into()) };
        let middle = first.hash_keys.first() / 2 + first.hash_keys.last() / 2;
        let (low, high) = stream.split(&first.id, middle)?;
        let open = by_hash_key(stream.open_shards());
        let [.., one, other] = &*open else { return Err("one shard is open".into()) };
        let merged = stream.merge(&one.id, &other.id)?;
        let [first, low, high] = [&first.id, &low, &high].map(short);
        let [one, other, merged] = [&one.id, &other.id, &merged].map(short);
        self.tell(format_args!(
            "shard {first} is split into {low} and {high}; {one} and {other} are merged into {merged}"
        ));
        Ok(())
    }

    /// Waits until all open shards are read, by workers that have equal shares; then reads for a
    /// while.
    async fn until_shared(&mut self, stream: &SimStream) -> Result<(), Failure> {
        let mut open: Vec<_> = stream.open_shards().into_iter().map(|shard| shard.id).collect();
        open.sort();
        let is_shared = |fleet: &Self| {
            let readers = fleet.readers();
            let shares = || readers.values().map(Vec::len);
            let even = shares().max().unwrap_or(0) - shares().min().unwrap_or(0) <= 1;
            let mut read: Vec<_> = readers.values().flatten().collect();
            read.sort();
            even && read.into_iter().eq(&open)
        };
        self.until("shards are not shared", is_shared).await?;
        let (workers, shards) = (self.workers.len(), open.len());
        self.tell(format_args!("{workers} workers share {shards} shards"));
        for _ in 0..A_WHILE {
            self.look().await?;
        }
        Ok(())
    }

    pub(crate) async fn until_all_is_read(&mut self, stream: &SimStream) -> Result<(), Failure> {
        let put = stream.everything_put().len();
        self.until("not everything is read", |fleet| fleet.deliveries.count() >= put).await?;
        self.tell(format_args!("all of {put} records were worked on"));
        Ok(())
    }

    async fn until(&mut self, not: &str, so: impl Fn(&Self) -> bool) -> Result<(), Failure> {
        let most = MOST_LOOKS + looks_in(self.plan.options.ttl() * 10);
        for _ in 0..most {
            if so(self) {
                return Ok(());
            }
            self.look().await?;
        }
        Err(format!("{not} within {:?}", BETWEEN_LOOKS * most).into())
    }

    /// Shows how things stand a moment later; an error where a worker has ended that should not.
    async fn look(&mut self) -> Result<(), Failure> {
        self.refresh().await;
        let ended = self.workers.iter().find(|(_, worker)| worker.ended.is_finished());
        if let Some(name) = ended.map(|(name, _)| name.clone()) {
            self.until_ended(&name).await?;
            return Err(format!("{name} ended by itself").into());
        }
        Ok(())
    }

    async fn refresh(&mut self) {
        sleep(BETWEEN_LOOKS).await;
        self.show();
    }

    /// Who reads which shards.
    fn readers(&self) -> BTreeMap<String, Vec<ShardId>> {
        let shards = |worker: &Started| {
            worker.handle.status().shards.into_iter().map(|status| status.shard).collect()
        };
        self.workers.iter().map(|(name, worker)| (name.clone(), shards(worker))).collect()
    }
}

fn by_hash_key(mut shards: Vec<Shard>) -> Vec<Shard> {
    shards.sort_by_key(|shard| shard.hash_keys);
    shards
}

fn looks_in(time: Duration) -> u32 {
    u32::try_from(time.as_millis() / BETWEEN_LOOKS.as_millis()).unwrap_or(u32::MAX)
}

const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// In looks: for the eye to follow.
const A_WHILE: u32 = 18;

/// A minute: longer than anything takes that comes about at all, but for leases that run out.
const MOST_LOOKS: u32 = 600;
