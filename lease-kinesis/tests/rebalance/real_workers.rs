//! Runs this crate's own `Worker`, each in a simulated process in virtual time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use lease_core::conformance::SkewedClock;
use lease_core::conformance::{ProcessId, Simulation};
use lease_core::store::Clock;
use lease_kinesis::{
    Batch, CheckpointError, Checkpointer, InitialPosition, Outcome, ProcessorError,
    RecordProcessor, ShardContext, ShardId, SimStream, Worker, WorkerHandle,
};
use lease_memory::MemoryStore;
use lease_test_servers::simulation::RemoteStream;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::sleep;

use crate::counted_table::{CountedTable, Notifications, TableFault, Traffic};
use crate::fleet::{Agenda, Costs, Disturbances, Fleet, Millis, Observed, Readers};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) notifications: Notifications,
    pub(crate) mode: Mode,
    /// Worker `n` replaces worker `n - replaces`.
    pub(crate) replaces: Option<usize>,
    /// The percentage of throttled requests.
    pub(crate) throttled: u8,
    /// The clocks are fast and slow, in turns from worker to worker.
    pub(crate) clock_error: f64,
    pub(crate) between_records: Millis,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Lists,
    Session,
}

pub(crate) struct RealWorkers {
    simulation: Simulation,
    setup: Setup,
    stream: SimStream,
    store: MemoryStore,
    traffic: Arc<Mutex<Traffic>>,
    notes: Arc<Mutex<Vec<Note>>>,
    workers: BTreeMap<usize, Started>,
    agenda: Agenda<Action>,
    readers: Readers,
    shards: BTreeMap<usize, ShardLife>,
    processed: Vec<Work>,
    /// Each rule needs these writes, so they do not count as costs.
    checkpoints: u64,
    observed: Observed,
    seed: u64,
    random: StdRng,
}

struct Started {
    process: ProcessId,
    handle: WorkerHandle,
    fault: TableFault,
    has_ended: Arc<Mutex<bool>>,
    is_paused: bool,
    reads: BTreeSet<usize>,
}

struct ShardLife {
    hash_key: u128,
    parents: Vec<usize>,
    has_ended: bool,
    /// The time at which the shard's last reader stopped, or the shard became readable.
    free_since: Millis,
    /// Whether no record was processed since the start of a reader.
    awaits_record: bool,
}

struct Work {
    put: Millis,
    times: u32,
}

enum Action {
    Start(usize),
    Resume(usize),
    Heal(usize),
    Put,
}

struct Note {
    worker: usize,
    shard: usize,
    what: NoteKind,
}

enum NoteKind {
    Started,
    Record(usize),
    Checkpointed,
    Ended,
    Stopped,
}

impl RealWorkers {
    pub(crate) fn new(leases: usize, setup: Setup, seed: u64) -> Self {
        let simulation = Simulation::new(seed);
        let (stream, store) = simulation.on_network(|| {
            let shards = u16::try_from(leases).unwrap();
            (SimStream::new(shards), MemoryStore::new())
        });
        let mut agenda = Agenda::new();
        agenda.at(0, Action::Put);
        let mut fleet = Self {
            simulation,
            setup,
            stream,
            store,
            traffic: Arc::default(),
            notes: Arc::default(),
            workers: BTreeMap::new(),
            agenda,
            readers: Readers::none(0),
            shards: BTreeMap::new(),
            processed: Vec::new(),
            checkpoints: 0,
            observed: Observed::default(),
            seed,
            random: StdRng::seed_from_u64(seed),
        };
        fleet.add_new_shards(0);
        fleet
    }

    fn add_new_shards(&mut self, now: Millis) {
        for shard in self.stream.open_shards() {
            let parents: Vec<_> = shard.parents.iter().map(number).collect();
            let is_new = parents.is_empty();
            let life = ShardLife {
                hash_key: shard.hash_keys.first(),
                parents,
                has_ended: false,
                free_since: now,
                awaits_record: true,
            };
            if self.shards.insert(number(&shard.id), life).is_none() {
                self.readers.make(number(&shard.id));
                if is_new {
                    self.readers.open(number(&shard.id));
                }
            }
        }
    }

    fn start(&mut self, worker: usize) {
        let setup = self.setup;
        let fault = TableFault::new(setup.throttled, self.seed * 1_000 + worker as u64);
        let network = self.simulation.network().clone();
        let (traffic, store) = (Arc::clone(&self.traffic), self.store.clone());
        let table =
            CountedTable::to(store, setup.notifications, traffic, fault.clone(), network.clone());
        let source = RemoteStream::new(self.stream.clone(), network);
        let (notes, stream) = (Arc::clone(&self.notes), self.stream.clone());
        let processor = move |shard: &ShardContext| NotingProcessor {
            notes: Arc::clone(&notes),
            worker,
            shard: number(&shard.shard),
        };
        let has_ended = Arc::new(Mutex::new(false));
        let ended = Arc::clone(&has_ended);
        let error = if worker.is_multiple_of(2) { setup.clock_error } else { -setup.clock_error };
        let seed = self.seed * 1_000 + worker as u64;
        let mut handle = None;
        let process = self.simulation.start(|_| {
            let clock: Arc<dyn Clock> = Arc::new(SkewedClock::new(Duration::ZERO, 1.0 + error));
            let mut builder = Worker::builder("shop", table, source, processor)
                .with_name(name(worker).parse().unwrap())
                .with_initial_position(InitialPosition::TrimHorizon)
                .with_clock(clock)
                .with_wall_clock(move || stream.wall_clock())
                .with_seed(seed);
            if setup.mode == Mode::Session {
                builder = builder.with_session();
            }
            if let Some(replaced) = setup.replaces.and_then(|count| worker.checked_sub(count)) {
                builder = builder.replacing(name(replaced).parse().unwrap());
            }
            let worker = builder.build().unwrap();
            handle = Some(worker.handle());
            async move {
                worker.run().await.unwrap();
                *ended.lock().unwrap() = true;
            }
        });
        let (handle, reads) = (handle.unwrap(), BTreeSet::new());
        let started = Started { process, handle, fault, has_ended, is_paused: false, reads };
        self.workers.insert(worker, started);
    }

    fn put(&mut self, now: Millis) {
        let (stream, processed) = (&self.stream, &mut self.processed);
        let shards = self.shards.values().filter(|shard| !shard.has_ended);
        self.simulation.on_network(|| {
            for shard in shards {
                let record = processed.len();
                stream.put_with_hash_key("any", shard.hash_key, record.to_string());
                processed.push(Work { put: now, times: 0 });
            }
        });
    }

    fn take_notes(&mut self) {
        let now = millis(self.simulation.now());
        let notes = std::mem::take(&mut *self.notes.lock().unwrap());
        for Note { worker, shard, what } in notes {
            // After a kill, a processor notes only that it was dropped.
            let Some(started) = self.workers.get_mut(&worker) else { continue };
            let life = self.shards.get_mut(&shard).unwrap();
            match what {
                NoteKind::Started => {
                    started.reads.insert(shard);
                    self.readers.start(shard, worker);
                    self.observed.idle.push(now - life.free_since);
                    life.awaits_record = true;
                    let parents = life.parents.clone();
                    let all_ended = parents.iter().all(|parent| self.has_ended(*parent));
                    self.observed.before_parents += u64::from(!all_ended);
                }
                NoteKind::Record(record) => {
                    self.processed[record].times += 1;
                    self.observed.replayed += u64::from(self.processed[record].times > 1);
                    if std::mem::take(&mut life.awaits_record) {
                        self.observed.first_records.push(now - life.free_since);
                    }
                }
                NoteKind::Checkpointed => self.checkpoints += 1,
                NoteKind::Ended => {
                    life.has_ended = true;
                    self.readers.close(shard);
                    self.open_children(now);
                }
                NoteKind::Stopped => {
                    started.reads.remove(&shard);
                    if self.readers.all()[shard].contains(&worker) {
                        self.readers.stop(shard, worker);
                        life.free_since = now;
                    }
                }
            }
        }
        let gone = |started: &Started| *started.has_ended.lock().unwrap();
        for (_, started) in self.workers.extract_if(.., |_, started| gone(started)) {
            self.simulation.kill(started.process);
        }
    }

    fn has_ended(&self, shard: usize) -> bool {
        self.shards.get(&shard).is_none_or(|shard| shard.has_ended)
    }

    /// A shard is readable once all its parents have ended.
    fn open_children(&mut self, now: Millis) {
        let may_be_read: Vec<_> = self
            .shards
            .iter()
            .filter(|(_, life)| !life.parents.is_empty() && !life.has_ended)
            .filter(|(_, life)| life.parents.iter().all(|parent| self.has_ended(*parent)))
            .map(|(shard, _)| *shard)
            .collect();
        for shard in may_be_read {
            if self.readers.open(shard) {
                self.shards.get_mut(&shard).unwrap().free_since = now;
            }
        }
    }

    fn stop_reading(&mut self, now: Millis, worker: usize) {
        self.readers.stop_all(worker);
        for shard in &self.workers[&worker].reads {
            self.shards.get_mut(shard).unwrap().free_since = now;
        }
    }

    fn resume_readers(&mut self) {
        for (worker, started) in &mut self.workers {
            if started.is_paused && self.simulation.runs(started.process) {
                started.is_paused = false;
                for shard in &started.reads {
                    self.readers.resume(*shard, *worker);
                }
            }
        }
    }
}

impl Disturbances for RealWorkers {
    fn pause(&mut self, now: Millis, worker: usize, length: Millis) {
        self.stop_reading(now, worker);
        let started = self.workers.get_mut(&worker).unwrap();
        started.is_paused = true;
        self.simulation.pause(started.process);
        self.agenda.at(now + length, Action::Resume(worker));
    }

    fn cut(&mut self, now: Millis, worker: usize, length: Millis) {
        self.workers[&worker].fault.cut();
        self.agenda.at(now + length, Action::Heal(worker));
    }

    fn split_all(&mut self, now: Millis) {
        self.simulation.on_network(|| {
            for shard in self.stream.open_shards() {
                let (first, last) = (shard.hash_keys.first(), shard.hash_keys.last());
                self.stream.split(&shard.id, first + (last - first) / 2 + 1).unwrap();
            }
        });
        self.add_new_shards(now);
    }

    fn merge_all(&mut self, now: Millis) {
        let mut open = self.stream.open_shards();
        open.sort_by_key(|shard| shard.hash_keys.first());
        self.simulation.on_network(|| {
            for pair in open.chunks_exact(2) {
                self.stream.merge(&pair[0].id, &pair[1].id).unwrap();
            }
        });
        self.add_new_shards(now);
    }
}

impl Fleet for RealWorkers {
    fn next(&self) -> Option<Millis> {
        Some(millis(self.simulation.now()) + 1)
    }

    fn step(&mut self, now: Millis) {
        while millis(self.simulation.now()) < now {
            let reached = millis(self.simulation.now());
            while let Some((when, action)) = self.agenda.due(reached) {
                match action {
                    Action::Start(worker) => self.start(worker),
                    Action::Resume(worker) => self.simulation.resume(self.workers[&worker].process),
                    Action::Heal(worker) => self.workers[&worker].fault.heal(),
                    Action::Put => {
                        self.put(when);
                        self.agenda.at(when + self.setup.between_records, Action::Put);
                    }
                }
            }
            self.simulation.step();
            self.take_notes();
            self.resume_readers();
        }
    }

    fn join(&mut self, now: Millis, worker: usize) {
        let begins = now + self.random.random_range(0..1_000);
        self.agenda.at(begins, Action::Start(worker));
    }

    fn crash(&mut self, now: Millis, worker: usize) {
        self.stop_reading(now, worker);
        let started = self.workers.remove(&worker).unwrap();
        started.fault.cut();
        self.simulation.kill(started.process);
    }

    fn leave(&mut self, _: Millis, worker: usize) {
        self.workers[&worker].handle.stop();
    }

    fn leader(&self) -> Option<usize> {
        None
    }

    fn who_reads(&self) -> &Readers {
        &self.readers
    }

    fn costs(&self) -> Costs {
        let mut costs = self.traffic.lock().unwrap().costs;
        costs.writes -= self.checkpoints;
        costs
    }

    fn observed(&self) -> Option<Observed> {
        let traffic = self.traffic.lock().unwrap();
        let ticks = self.workers.values().map(|worker| worker.handle.status().counters.ticks);
        let now = millis(self.simulation.now());
        let unread = |work: &&Work| work.times == 0 && work.put + OLD < now;
        Some(Observed {
            ticks: ticks.sum(),
            failed_claims: traffic.failed_claims,
            stale_writes: traffic.stale_writes,
            unread: self.processed.iter().filter(unread).count(),
            ..self.observed.clone()
        })
    }
}

struct NotingProcessor {
    notes: Arc<Mutex<Vec<Note>>>,
    worker: usize,
    shard: usize,
}

impl NotingProcessor {
    fn note(&self, what: NoteKind) {
        let note = Note { worker: self.worker, shard: self.shard, what };
        self.notes.lock().unwrap().push(note);
    }

    async fn checkpoint(&self, checkpointer: &Checkpointer) -> Result<(), CheckpointError> {
        checkpointer.checkpoint().await?;
        self.note(NoteKind::Checkpointed);
        Ok(())
    }
}

#[async_trait]
impl RecordProcessor for NotingProcessor {
    async fn initialize(&mut self, _: &ShardContext) -> Result<(), ProcessorError> {
        self.note(NoteKind::Started);
        Ok(())
    }

    async fn process_records(&mut self, batch: &Batch, checkpointer: &Checkpointer) -> Outcome {
        for record in &batch.records {
            let record = str::from_utf8(&record.data).unwrap().parse().unwrap();
            self.note(NoteKind::Record(record));
        }
        sleep(A_BATCH).await;
        self.checkpoint(checkpointer).await.into()
    }

    async fn lease_lost(&mut self) {
        self.note(NoteKind::Stopped);
    }

    async fn shard_ended(&mut self, checkpointer: &Checkpointer) -> Result<(), ProcessorError> {
        self.checkpoint(checkpointer).await?;
        self.note(NoteKind::Ended);
        Ok(())
    }

    async fn shutdown_requested(
        &mut self,
        checkpointer: &Checkpointer,
    ) -> Result<(), ProcessorError> {
        sleep(SHUT_DOWN).await;
        checkpointer.checkpoint().await?;
        self.note(NoteKind::Stopped);
        Ok(())
    }
}

impl Drop for NotingProcessor {
    fn drop(&mut self) {
        self.note(NoteKind::Stopped);
    }
}

fn name(worker: usize) -> String {
    format!("worker-{worker}")
}

fn number(shard: &ShardId) -> usize {
    shard.as_str().rsplit('-').next().unwrap().parse().unwrap()
}

fn millis(time: Duration) -> Millis {
    u64::try_from(time.as_millis()).unwrap()
}

/// An older record that was not processed counts as unread.
const OLD: Millis = 20_000;

const A_BATCH: Duration = Duration::from_millis(100);

/// An assumption that is the same for all rules.
const SHUT_DOWN: Duration = Duration::from_secs(2);
