//! Workers share the shards of a stream, while they come and go and the stream is reshaped: every
//! record is worked on, in the order of its partition key.
//!
//! Each worker lives on a thread and a runtime of its own, as it would in a process of its own.
//! Killing one drops its runtime: nothing is handed over, and its leases run out.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use clap::Parser;
use lease_core::LeaseOptions;
use lease_examples::deliveries::Deliveries;
use lease_examples::screen::Screen;
use lease_examples::{Failure, end, open_table};
use lease_kinesis::{
    Batch, Checkpointer, InitialPosition, Outcome, RecordProcessor, Shard, ShardContext, ShardId,
    ShardStatus, SimStream, Status, Worker, WorkerBuilder, WorkerHandle,
};
use tokio::runtime::Builder;
use tokio::select;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{sleep, timeout};

/// Shares the shards of a stream among workers: one joins, one is killed, one stops, and shards are
/// split and merged.
#[derive(Debug, Parser)]
struct Arguments {
    /// Where it is kept who reads which shard, and how far.
    #[arg(long, default_value = "memory")]
    store: String,
    /// Reads this stream in AWS instead of a simulated one, until it is told to stop.
    #[arg(long, value_name = "NAME")]
    stream: Option<String>,
    /// How many workers begin.
    #[arg(long, default_value_t = 3, value_name = "NUMBER")]
    workers: usize,
    /// How many shards the simulated stream begins with.
    #[arg(long, default_value_t = 12, value_name = "NUMBER")]
    shards: u16,
    /// How long a lease lasts without a heartbeat, in seconds.
    #[arg(long, default_value_t = 2.0, value_name = "SECONDS", allow_negative_numbers = true)]
    ttl: f64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    end("shards", run(Arguments::parse()).await)
}

async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let Arguments { workers, shards, .. } = arguments;
    if !(2..=MOST_WORKERS).contains(&workers) {
        let range = format!("2 to {MOST_WORKERS}, since one is killed and another stops");
        return Err(format!("{workers} workers are out of range: {range}").into());
    }
    if !(2..=MOST_SHARDS).contains(&shards) {
        let range = format!("2 to {MOST_SHARDS}, since two are merged");
        return Err(format!("{shards} shards are out of range: {range}").into());
    }
    let ttl = Duration::try_from_secs_f64(arguments.ttl)
        .map_err(|_no_length| format!("ttl {:?} is not a length in seconds", arguments.ttl))?;
    let options = LeaseOptions::new(ttl)?;
    // Opened once here, so that a wrong address is told before anything starts.
    open_table(&arguments.store).await?;

    if let Some(stream) = arguments.stream {
        let fleet = Fleet::new(arguments.store, options, Stream::in_aws(stream)?);
        return read(fleet, workers).await;
    }
    let stream = SimStream::new(shards);
    let fleet = Fleet::new(arguments.store, options, Stream::Simulated(stream.clone()));
    prove(fleet, workers, stream).await
}

/// Reads a stream that others write to.
async fn read(mut fleet: Fleet, workers: usize) -> Result<ExitCode, Failure> {
    select! {
        biased;
        () = told_to_stop() => fleet.tell("told to stop: everything is handed over"),
        ended = fleet.look_on(workers) => ended?,
    }
    fleet.stop_all().await?;
    Ok(ExitCode::SUCCESS)
}

/// Does everything to a simulated stream and its readers, and holds what was read against what was
/// put.
async fn prove(mut fleet: Fleet, workers: usize, stream: SimStream) -> Result<ExitCode, Failure> {
    let producer = tokio::spawn(put_all_the_time(stream.clone()));
    select! {
        biased;
        () = told_to_stop() => {
            fleet.tell("told to stop: everything is handed over");
            fleet.stop_all().await?;
            fleet.screen.end("verdict: none, since this was stopped half-way");
            return Ok(ExitCode::FAILURE);
        }
        ended = fleet.live_through(workers, &stream) => ended?,
    }
    producer.abort();
    drop(producer.await);
    fleet.until_all_is_read(&stream).await?;
    fleet.stop_all().await?;
    let verdict = fleet.deliveries.verdict(&stream.put_by_partition_key());
    fleet.screen.end(verdict);
    Ok(if verdict.is_right() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn put_all_the_time(stream: SimStream) {
    for number in 0_u32.. {
        stream.put(&format!("customer {}", number % 150), number.to_string());
        if number % 5 == 0 {
            sleep(Duration::from_millis(20)).await;
        }
    }
}

/// All workers, and what they do together.
struct Fleet {
    plan: Arc<Plan>,
    deliveries: Deliveries,
    workers: BTreeMap<String, Started>,
    screen: Screen,
}

/// What each worker is made of.
struct Plan {
    application: String,
    store: String,
    options: LeaseOptions,
    stream: Stream,
}

enum Stream {
    Simulated(SimStream),
    #[cfg(feature = "aws")]
    InAws(String),
}

/// A worker that was started.
struct Started {
    handle: WorkerHandle,
    /// Whether its next batch is its last.
    doomed: Arc<AtomicBool>,
    ended: JoinHandle<Result<Ended, Failure>>,
    /// Where this is dropped, nobody waits for the worker any more.
    _wanted: oneshot::Sender<()>,
}

/// How a worker ended.
enum Ended {
    Stopped,
    Killed { in_hand: usize },
}

impl Fleet {
    fn new(store: String, options: LeaseOptions, stream: Stream) -> Self {
        let application = stream.application();
        let plan = Arc::new(Plan { application, store, options, stream });
        let (deliveries, screen) = (Deliveries::default(), Screen::start());
        Self { plan, deliveries, workers: BTreeMap::new(), screen }
    }

    /// All that can happen to workers and their stream.
    async fn live_through(&mut self, workers: usize, stream: &SimStream) -> Result<(), Failure> {
        for number in 1..=workers {
            self.start(number).await?;
        }
        self.tell(format_args!("{workers} workers begin"));
        self.until_shared(stream).await?;

        self.start(workers + 1).await?;
        self.tell(format_args!("worker-{} joins", workers + 1));
        self.until_shared(stream).await?;

        self.kill("worker-2").await?;
        self.until_shared(stream).await?;

        self.reshape(stream)?;
        self.until_shared(stream).await?;

        self.tell("worker-1 is told to stop");
        self.stop("worker-1").await?;
        self.until_shared(stream).await
    }

    async fn look_on(&mut self, workers: usize) -> Result<(), Failure> {
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

    async fn stop_all(&mut self) -> Result<(), Failure> {
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

    async fn until_all_is_read(&mut self, stream: &SimStream) -> Result<(), Failure> {
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
        let table = self.table();
        self.screen.show(&table);
    }

    fn tell(&mut self, what: impl std::fmt::Display) {
        let table = self.table();
        self.screen.tell(what, &table);
    }

    /// Who reads which shards.
    fn readers(&self) -> BTreeMap<String, Vec<ShardId>> {
        let shards = |worker: &Started| {
            worker.handle.status().shards.into_iter().map(|status| status.shard).collect()
        };
        self.workers.iter().map(|(name, worker)| (name.clone(), shards(worker))).collect()
    }

    fn table(&self) -> Vec<String> {
        self.workers.iter().map(|(name, worker)| row(name, &worker.handle.status())).collect()
    }
}

fn row(name: &str, Status { shards, counters, .. }: &Status) -> String {
    let read: Vec<_> = shards.iter().map(|ShardStatus { shard, .. }| short(shard)).collect();
    let (records, count, read) = (counters.records, shards.len(), read.join(" "));
    format!("           {name:<9} {records:>6} records  {count:>3} shards  {read}")
        .trim_end()
        .to_owned()
}

/// What ends a process whatever its worker does.
struct Ends {
    /// With so many records in hand.
    killed: mpsc::Receiver<usize>,
    /// Whoever started it has failed.
    unwanted: oneshot::Receiver<()>,
}

/// Runs a worker as a process of its own: nothing that it started outlives this.
fn process(
    plan: &Plan,
    name: &str,
    clerk: Clerk,
    told: oneshot::Sender<WorkerHandle>,
    mut ends: Ends,
) -> Result<Ended, Failure> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let worker = plan.worker(name, clerk).await?;
        drop(told.send(worker.handle()));
        let run = tokio::spawn(worker.run());
        select! {
            biased;
            // The runtime is dropped with everything on it: there is no time to hand over.
            Some(in_hand) = ends.killed.recv() => Ok(Ended::Killed { in_hand }),
            _ = ends.unwanted => Err("the fleet is no more".into()),
            ended = run => Ok(ended?.map(|()| Ended::Stopped)?),
        }
    })
}

impl Plan {
    async fn worker(&self, name: &str, clerk: Clerk) -> Result<Worker, Failure> {
        let table = open_table(&self.store).await?;
        let factory = move |_: &ShardContext| clerk.clone();
        let application = &*self.application;
        let builder = match &self.stream {
            Stream::Simulated(stream) => {
                let builder = Worker::builder(application, table, stream.clone(), factory);
                builder.with_name(name.parse()?)
            }
            #[cfg(feature = "aws")]
            // Other processes may have workers of the same number: each has a name by itself.
            Stream::InAws(stream) => {
                let stream = lease_examples::kinesis::open(stream)?;
                Worker::builder(application, table, stream, factory)
            }
        };
        Ok(self.set_up(builder).build()?)
    }

    fn set_up(&self, builder: WorkerBuilder) -> WorkerBuilder {
        builder
            .with_options(self.options.clone())
            .with_initial_position(InitialPosition::TrimHorizon)
            // So that the table lives.
            .with_idle_pause(Duration::from_millis(200))
    }
}

impl Stream {
    #[cfg(feature = "aws")]
    fn in_aws(stream: String) -> Result<Self, Failure> {
        // Opened once here, so that what is missing is told before anything starts.
        lease_examples::kinesis::open(&stream)?;
        Ok(Self::InAws(stream))
    }

    #[cfg(not(feature = "aws"))]
    fn in_aws(stream: String) -> Result<Self, Failure> {
        Err(format!("stream {stream} is in AWS: run with `--features aws`").into())
    }

    /// Under which name the workers are together.
    fn application(&self) -> String {
        match self {
            // A simulated stream begins anew in each run, and so does what reads it.
            Self::Simulated(_) => {
                format!("simulated-{}-{}", std::process::id(), millis_since_1970())
            }
            // Of an ARN, the name.
            #[cfg(feature = "aws")]
            Self::InAws(stream) => {
                format!("shards-{}", stream.rsplit('/').next().unwrap_or_default())
            }
        }
    }
}

/// Works on records.
#[derive(Clone)]
struct Clerk {
    /// None of a stream that does not end: there is not memory enough.
    deliveries: Option<Deliveries>,
    doomed: Arc<AtomicBool>,
    kill: mpsc::Sender<usize>,
}

#[async_trait]
impl RecordProcessor for Clerk {
    async fn process_records(&mut self, batch: &Batch, checkpointer: &Checkpointer) -> Outcome {
        if let Some(deliveries) = &self.deliveries {
            batch.records.iter().for_each(|record| deliveries.note(record));
        }
        if self.doomed.load(Ordering::SeqCst) {
            let _ = self.kill.send(batch.records.len()).await;
            std::future::pending::<()>().await;
        }
        checkpointer.checkpoint().await.into()
    }
}

fn by_hash_key(mut shards: Vec<Shard>) -> Vec<Shard> {
    shards.sort_by_key(|shard| shard.hash_keys);
    shards
}

/// `shardId-000000000012` as 12.
fn short(shard: &ShardId) -> &str {
    let number = shard.as_str().trim_start_matches("shardId-");
    let short = number.trim_start_matches('0');
    if short.is_empty() { "0" } else { short }
}

/// Completes at Ctrl-C; and where a supervisor ends the program.
async fn told_to_stop() {
    let interrupted = async {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    select! {
        () = interrupted => (),
        () = terminated() => (),
    }
}

#[cfg(unix)]
async fn terminated() {
    use tokio::signal::unix::{SignalKind, signal};

    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => drop(terminate.recv().await),
        Err(_unknown) => std::future::pending().await,
    }
}

#[cfg(not(unix))]
async fn terminated() {
    std::future::pending().await
}

#[expect(clippy::disallowed_methods, reason = "names a run, no lease depends on it")]
fn millis_since_1970() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis()
}

fn looks_in(time: Duration) -> u32 {
    u32::try_from(time.as_millis() / BETWEEN_LOOKS.as_millis()).unwrap_or(u32::MAX)
}

const MOST_WORKERS: usize = 20;

const MOST_SHARDS: u16 = 200;

const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// In looks: for the eye to follow.
const A_WHILE: u32 = 18;

/// A minute: longer than anything takes that comes about at all, but for leases that run out.
const MOST_LOOKS: u32 = 600;
