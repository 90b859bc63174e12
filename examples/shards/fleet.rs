//! All workers, and the events of the example.

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

use crate::table::short;
use crate::worker::{EndSignals, Ended, FleetSettings, Processor, Stream, process};

pub(crate) struct Fleet {
    pub(crate) settings: Arc<FleetSettings>,
    pub(crate) deliveries: Deliveries,
    pub(crate) workers: BTreeMap<String, Started>,
    pub(crate) screen: Screen,
}

pub(crate) struct Started {
    pub(crate) handle: WorkerHandle,
    /// If true, the worker is killed before its next checkpoint.
    is_doomed: Arc<AtomicBool>,
    ended: JoinHandle<Result<Ended, Failure>>,
    /// A drop of this sender ends the worker's thread.
    _fleet: oneshot::Sender<()>,
}

impl Fleet {
    pub(crate) fn new(store: String, options: LeaseOptions, stream: Stream) -> Self {
        let application = stream.application();
        let settings = Arc::new(FleetSettings { application, store, options, stream });
        let (deliveries, screen) = (Deliveries::default(), Screen::start());
        Self { settings, deliveries, workers: BTreeMap::new(), screen }
    }

    /// Starts workers, adds one, kills one, reshards the stream, and stops one. Waits after each
    /// step until the shards are shared evenly.
    pub(crate) async fn run_all_events(
        &mut self,
        workers: usize,
        stream: &SimStream,
    ) -> Result<(), Failure> {
        for number in 1..=workers {
            self.start(number).await?;
        }
        self.print(format_args!("{workers} workers start"));
        self.until_shared(stream).await?;

        self.start(workers + 1).await?;
        self.print(format_args!("worker-{} joins", workers + 1));
        self.until_shared(stream).await?;

        let victim = self.busy_worker()?;
        self.kill(&victim).await?;
        self.until_shared(stream).await?;

        self.reshard(stream)?;
        self.until_shared(stream).await?;

        self.print("worker-1 is asked to stop");
        self.stop("worker-1").await?;
        self.until_shared(stream).await
    }

    /// Prints a line for each move of a shard, until the future is dropped.
    pub(crate) async fn watch(&mut self, workers: usize) -> Result<(), Failure> {
        for number in 1..=workers {
            self.start(number).await?;
        }
        self.print(format_args!("{workers} workers start"));
        let mut before = self.readers();
        loop {
            self.poll().await?;
            let now = self.readers();
            if now != before {
                self.print("shards have changed hands");
                before = now;
            }
        }
    }

    async fn start(&mut self, number: usize) -> Result<(), Failure> {
        let name = format!("worker-{number}");
        let (started, handle) = oneshot::channel();
        let (kill, killed) = mpsc::channel(1);
        let is_doomed = Arc::new(AtomicBool::new(false));
        let is_endless = !matches!(self.settings.stream, Stream::Simulated(_));
        let deliveries = (!is_endless).then(|| self.deliveries.clone());
        let processor = Processor { deliveries, is_doomed: Arc::clone(&is_doomed), kill };
        let (settings, worker) = (Arc::clone(&self.settings), name.clone());
        let (fleet, fleet_dropped) = oneshot::channel();
        let signals = EndSignals { killed, fleet_dropped };
        let ended =
            spawn_blocking(move || process(&settings, &worker, processor, started, signals));
        // If the worker could not start, the thread returns the reason.
        let Ok(handle) = handle.await else { return ended.await?.map(|_ended| ()) };
        self.workers.insert(name, Started { handle, is_doomed, ended, _fleet: fleet });
        Ok(())
    }

    /// Returns the first worker that reads a shard, except worker-1, which stops later. Some
    /// workers read no shard if there are more workers than shards.
    fn busy_worker(&self) -> Result<String, Failure> {
        let readers = self.readers().into_iter();
        let busy = readers.filter(|(name, shards)| name != "worker-1" && !shards.is_empty());
        let first = busy.map(|(name, _)| name).min_by_key(|name| (name.len(), name.clone()));
        Ok(first.ok_or("no worker but worker-1 reads a shard")?)
    }

    async fn kill(&mut self, name: &str) -> Result<(), Failure> {
        if let Some(worker) = self.workers.get(name) {
            worker.is_doomed.store(true, Ordering::SeqCst);
        }
        if let Ended::Killed { unsaved } = self.until_ended(name).await? {
            self.print(format_args!(
                "{name} is KILLED: its last {unsaved} records have no checkpoint"
            ));
        }
        Ok(())
    }

    async fn stop(&mut self, name: &str) -> Result<(), Failure> {
        if let Some(worker) = self.workers.get(name) {
            worker.handle.stop();
        }
        self.until_ended(name).await?;
        self.print(format_args!("{name} has handed over all shards"));
        Ok(())
    }

    pub(crate) async fn stop_all(&mut self) -> Result<(), Failure> {
        for worker in self.workers.values() {
            worker.handle.stop();
        }
        while let Some(name) = self.workers.keys().next().cloned() {
            self.until_ended(&name).await?;
        }
        self.print("all workers have stopped");
        Ok(())
    }

    async fn until_ended(&mut self, name: &str) -> Result<Ended, Failure> {
        let is_running = |fleet: &Self| {
            fleet.workers.get(name).is_some_and(|worker| !worker.ended.is_finished())
        };
        for _ in 0..MAX_POLLS {
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
    fn reshard(&mut self, stream: &SimStream) -> Result<(), Failure> {
        let open = by_hash_key(stream.open_shards());
        let [first, ..] = &*open else { return Err("no shard is open".into()) };
        let middle = first.hash_keys.first() / 2 + first.hash_keys.last() / 2;
        let (low, high) = stream.split(&first.id, middle)?;
        let open = by_hash_key(stream.open_shards());
        let [.., one, other] = &*open else { return Err("one shard is open".into()) };
        let merged = stream.merge(&one.id, &other.id)?;
        let [first, low, high] = [&first.id, &low, &high].map(short);
        let [one, other, merged] = [&one.id, &other.id, &merged].map(short);
        self.print(format_args!(
            "shard {first} is split into {low} and {high}; {one} and {other} are merged into {merged}"
        ));
        Ok(())
    }

    /// Waits until all open shards are read and the shares differ by one at most. Then lets the
    /// workers read for two seconds.
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
        self.print(format_args!("{workers} workers share {shards} shards"));
        for _ in 0..PAUSE {
            self.poll().await?;
        }
        Ok(())
    }

    pub(crate) async fn until_all_are_processed(
        &mut self,
        stream: &SimStream,
    ) -> Result<(), Failure> {
        let put = stream.everything_put().len();
        self.until("some records are not processed", |fleet| fleet.deliveries.count() >= put)
            .await?;
        self.print(format_args!("all {put} records were processed"));
        Ok(())
    }

    async fn until(
        &mut self,
        otherwise: &str,
        condition: impl Fn(&Self) -> bool,
    ) -> Result<(), Failure> {
        let polls = MAX_POLLS + polls_in(self.settings.options.ttl() * 10);
        for _ in 0..polls {
            if condition(self) {
                return Ok(());
            }
            self.poll().await?;
        }
        Err(format!("{otherwise} within {:?}", POLL_INTERVAL * polls).into())
    }

    async fn poll(&mut self) -> Result<(), Failure> {
        self.refresh().await;
        let ended = self.workers.iter().find(|(_, worker)| worker.ended.is_finished());
        if let Some(name) = ended.map(|(name, _)| name.clone()) {
            self.until_ended(&name).await?;
            return Err(format!("{name} ended by itself").into());
        }
        Ok(())
    }

    async fn refresh(&mut self) {
        sleep(POLL_INTERVAL).await;
        self.redraw();
    }

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

fn polls_in(time: Duration) -> u32 {
    u32::try_from(time.as_millis() / POLL_INTERVAL.as_millis()).unwrap_or(u32::MAX)
}

const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The unit is a poll. The pause is long enough to read the table.
const PAUSE: u32 = 18;

/// One minute, in polls. Ten ttls are added if leases may have to expire.
const MAX_POLLS: u32 = 600;
