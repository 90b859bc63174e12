//! This crate's own `Worker`, each in a process of its own, in virtual time: no model of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use lease_core::conformance::{ProcessId, Simulation};
use lease_core::{Clock, SkewedClock};
use lease_kinesis::{
    Batch, CheckpointError, Checkpointer, InitialPosition, Outcome, ProcessorError,
    RecordProcessor, ShardContext, ShardId, SimStream, Worker, WorkerHandle,
};
use lease_memory::MemoryStore;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::sleep;

use crate::carried::Carried;
use crate::fleet::{Agenda, Costs, Fate, Fleet, Millis, Readers, Seen};
use crate::way::{Telling, Traffic, Trouble, Way};

/// How a fleet of workers is set up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SetUp {
    pub(crate) telling: Telling,
    /// Who takes whose place: worker `n` that of `n - this`.
    pub(crate) replaces: Option<usize>,
    /// Of a hundred requests to the store.
    pub(crate) throttled: u8,
    /// By how much the clocks of every second worker go fast, and those of the others slow.
    pub(crate) clock_error: f64,
    /// Of records, into each shard.
    pub(crate) between_records: Millis,
}

pub(crate) struct ByWorker {
    simulation: Simulation,
    set_up: SetUp,
    stream: SimStream,
    store: MemoryStore,
    traffic: Arc<Mutex<Traffic>>,
    notes: Arc<Mutex<Vec<Note>>>,
    workers: BTreeMap<usize, Started>,
    agenda: Agenda<Deed>,
    readers: Readers,
    shards: BTreeMap<usize, ShardLife>,
    /// By record.
    worked_on: Vec<Work>,
    /// What the processors wrote, which every rule would have them write.
    checkpoints: u64,
    seen: Seen,
    seed: u64,
    random: StdRng,
}

struct Started {
    process: ProcessId,
    handle: WorkerHandle,
    trouble: Trouble,
    has_ended: Arc<Mutex<bool>>,
    is_paused: bool,
    /// What its processors have begun and not ended.
    reads: BTreeSet<usize>,
}

struct ShardLife {
    hash_key: u128,
    parents: Vec<usize>,
    has_ended: bool,
    /// When the last one who read it stopped, or it could be read first.
    free_since: Millis,
    /// That it was moved, and no record was worked on since.
    awaits_record: bool,
}

/// What became of a record.
struct Work {
    put: Millis,
    times: u32,
}

enum Deed {
    Start(usize),
    Resume(usize),
    Heal(usize),
    Put,
}

/// What a processor tells.
struct Note {
    worker: usize,
    shard: usize,
    what: What,
}

enum What {
    Begun,
    Record(usize),
    Checkpointed,
    Ended,
    Stopped,
}

impl ByWorker {
    pub(crate) fn new(leases: usize, set_up: SetUp, seed: u64) -> Self {
        let simulation = Simulation::new(seed);
        let (stream, store) = simulation.on_network(|| {
            let shards = u16::try_from(leases).unwrap();
            (SimStream::new(shards), MemoryStore::new())
        });
        let mut agenda = Agenda::new();
        agenda.at(0, Deed::Put);
        let mut fleet = Self {
            simulation,
            set_up,
            stream,
            store,
            traffic: Arc::default(),
            notes: Arc::default(),
            workers: BTreeMap::new(),
            agenda,
            readers: Readers::none(0),
            shards: BTreeMap::new(),
            worked_on: Vec::new(),
            checkpoints: 0,
            seen: Seen::default(),
            seed,
            random: StdRng::seed_from_u64(seed),
        };
        fleet.meet_shards(0);
        fleet
    }

    /// Whatever the stream has by now.
    fn meet_shards(&mut self, now: Millis) {
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
        let set_up = self.set_up;
        let trouble = Trouble::new(set_up.throttled, self.seed * 1_000 + worker as u64);
        let network = self.simulation.network().clone();
        let (traffic, store) = (Arc::clone(&self.traffic), self.store.clone());
        let table = Way::to(store, set_up.telling, traffic, trouble.clone(), network.clone());
        let source = Carried { stream: self.stream.clone(), network };
        let (notes, stream) = (Arc::clone(&self.notes), self.stream.clone());
        let processor = move |shard: &ShardContext| Noting {
            notes: Arc::clone(&notes),
            worker,
            shard: number(&shard.shard),
        };
        let has_ended = Arc::new(Mutex::new(false));
        let ended = Arc::clone(&has_ended);
        let error = if worker.is_multiple_of(2) { set_up.clock_error } else { -set_up.clock_error };
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
            if let Some(replaced) = set_up.replaces.and_then(|count| worker.checked_sub(count)) {
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
        let started = Started { process, handle, trouble, has_ended, is_paused: false, reads };
        self.workers.insert(worker, started);
    }

    fn put(&mut self, now: Millis) {
        let (stream, worked_on) = (&self.stream, &mut self.worked_on);
        let shards = self.shards.values().filter(|shard| !shard.has_ended);
        self.simulation.on_network(|| {
            for shard in shards {
                let record = worked_on.len();
                stream.put_with_hash_key("any", shard.hash_key, record.to_string());
                worked_on.push(Work { put: now, times: 0 });
            }
        });
    }

    fn take_notes(&mut self) {
        let now = millis(self.simulation.now());
        let notes = std::mem::take(&mut *self.notes.lock().unwrap());
        for Note { worker, shard, what } in notes {
            // Of one that was killed, only its processors' ends are told.
            let Some(started) = self.workers.get_mut(&worker) else { continue };
            let life = self.shards.get_mut(&shard).unwrap();
            match what {
                What::Begun => {
                    started.reads.insert(shard);
                    self.readers.start(shard, worker);
                    self.seen.idle.push(now - life.free_since);
                    life.awaits_record = true;
                    let parents = life.parents.clone();
                    let all_ended = parents.iter().all(|parent| self.has_ended(*parent));
                    self.seen.before_parents += u64::from(!all_ended);
                }
                What::Record(record) => {
                    self.worked_on[record].times += 1;
                    self.seen.replayed += u64::from(self.worked_on[record].times > 1);
                    if std::mem::take(&mut life.awaits_record) {
                        self.seen.first_records.push(now - life.free_since);
                    }
                }
                What::Checkpointed => self.checkpoints += 1,
                What::Ended => {
                    life.has_ended = true;
                    self.readers.close(shard);
                    self.open_children(now);
                }
                What::Stopped => {
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

    /// A shard may be read once all that it was made of is.
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

    /// What still runs of it, after it has had its first moment.
    fn go_on(&mut self) {
        for (worker, started) in &mut self.workers {
            if started.is_paused && self.simulation.runs(started.process) {
                started.is_paused = false;
                for shard in &started.reads {
                    self.readers.go_on(*shard, *worker);
                }
            }
        }
    }
}

impl Fate for ByWorker {
    fn pause(&mut self, now: Millis, worker: usize, length: Millis) {
        self.stop_reading(now, worker);
        let started = self.workers.get_mut(&worker).unwrap();
        started.is_paused = true;
        self.simulation.pause(started.process);
        self.agenda.at(now + length, Deed::Resume(worker));
    }

    fn cut(&mut self, now: Millis, worker: usize, length: Millis) {
        self.workers[&worker].trouble.cut();
        self.agenda.at(now + length, Deed::Heal(worker));
    }

    fn split_all(&mut self, now: Millis) {
        self.simulation.on_network(|| {
            for shard in self.stream.open_shards() {
                let (first, last) = (shard.hash_keys.first(), shard.hash_keys.last());
                self.stream.split(&shard.id, first + (last - first) / 2 + 1).unwrap();
            }
        });
        self.meet_shards(now);
    }

    fn merge_all(&mut self, now: Millis) {
        let mut open = self.stream.open_shards();
        open.sort_by_key(|shard| shard.hash_keys.first());
        self.simulation.on_network(|| {
            for pair in open.chunks_exact(2) {
                self.stream.merge(&pair[0].id, &pair[1].id).unwrap();
            }
        });
        self.meet_shards(now);
    }
}

impl Fleet for ByWorker {
    fn next(&self) -> Option<Millis> {
        Some(millis(self.simulation.now()) + 1)
    }

    fn step(&mut self, now: Millis) {
        while millis(self.simulation.now()) < now {
            let reached = millis(self.simulation.now());
            while let Some((when, deed)) = self.agenda.due(reached) {
                match deed {
                    Deed::Start(worker) => self.start(worker),
                    Deed::Resume(worker) => self.simulation.resume(self.workers[&worker].process),
                    Deed::Heal(worker) => self.workers[&worker].trouble.heal(),
                    Deed::Put => {
                        self.put(when);
                        self.agenda.at(when + self.set_up.between_records, Deed::Put);
                    }
                }
            }
            self.simulation.step();
            self.take_notes();
            self.go_on();
        }
    }

    fn join(&mut self, now: Millis, worker: usize) {
        let begins = now + self.random.random_range(0..1_000);
        self.agenda.at(begins, Deed::Start(worker));
    }

    fn crash(&mut self, now: Millis, worker: usize) {
        self.stop_reading(now, worker);
        let started = self.workers.remove(&worker).unwrap();
        started.trouble.cut();
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

    fn seen(&self) -> Option<Seen> {
        let traffic = self.traffic.lock().unwrap();
        let ticks = self.workers.values().map(|worker| worker.handle.status().counters.ticks);
        let now = millis(self.simulation.now());
        let unread = |work: &&Work| work.times == 0 && work.put + OLD < now;
        Some(Seen {
            ticks: ticks.sum(),
            failed_claims: traffic.failed_claims,
            stale_writes: traffic.stale_writes,
            never_worked_on: self.worked_on.iter().filter(unread).count(),
            ..self.seen.clone()
        })
    }
}

/// A processor that works for a moment, and checkpoints what it was given.
struct Noting {
    notes: Arc<Mutex<Vec<Note>>>,
    worker: usize,
    shard: usize,
}

impl Noting {
    fn note(&self, what: What) {
        let note = Note { worker: self.worker, shard: self.shard, what };
        self.notes.lock().unwrap().push(note);
    }

    async fn checkpoint(&self, checkpointer: &Checkpointer) -> Result<(), CheckpointError> {
        checkpointer.checkpoint().await?;
        self.note(What::Checkpointed);
        Ok(())
    }
}

#[async_trait]
impl RecordProcessor for Noting {
    async fn initialize(&mut self, _: &ShardContext) -> Result<(), ProcessorError> {
        self.note(What::Begun);
        Ok(())
    }

    async fn process_records(&mut self, batch: &Batch, checkpointer: &Checkpointer) -> Outcome {
        for record in &batch.records {
            let record = str::from_utf8(&record.data).unwrap().parse().unwrap();
            self.note(What::Record(record));
        }
        sleep(A_BATCH).await;
        self.checkpoint(checkpointer).await.into()
    }

    async fn lease_lost(&mut self) {
        self.note(What::Stopped);
    }

    async fn shard_ended(&mut self, checkpointer: &Checkpointer) -> Result<(), ProcessorError> {
        self.checkpoint(checkpointer).await?;
        self.note(What::Ended);
        Ok(())
    }

    async fn shutdown_requested(
        &mut self,
        checkpointer: &Checkpointer,
    ) -> Result<(), ProcessorError> {
        sleep(SHUT_DOWN).await;
        checkpointer.checkpoint().await?;
        self.note(What::Stopped);
        Ok(())
    }
}

impl Drop for Noting {
    fn drop(&mut self) {
        self.note(What::Stopped);
    }
}

fn name(worker: usize) -> String {
    format!("worker-{worker}")
}

/// Shards are numbered from 0 on.
fn number(shard: &ShardId) -> usize {
    shard.as_str().rsplit('-').next().unwrap().parse().unwrap()
}

fn millis(time: Duration) -> Millis {
    u64::try_from(time.as_millis()).unwrap()
}

/// A record that nobody has worked on by then was lost.
const OLD: Millis = 20_000;

/// What a processor needs for a batch. An assumption.
const A_BATCH: Duration = Duration::from_millis(100);

/// What a processor needs to shut down. An assumption, the same for all rules.
const SHUT_DOWN: Duration = Duration::from_secs(2);
