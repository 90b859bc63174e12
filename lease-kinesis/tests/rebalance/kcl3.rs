//! The rule of the Kinesis Client Library 3: a leader assigns leases. Reimplements `LeaseAssignmentManager`
//! with its two deciders, `LeaseDiscoverer`, `WorkerMetricStatsReporter` and
//! `DynamoDBLockBasedLeaderDecider`. All leases have the same throughput.

mod assignment;

use std::collections::{BTreeMap, BTreeSet};

use rand::RngExt;

use crate::fleet::{Costs, Fleet, Millis, Readers};
use crate::model::{FAILOVER, Model, Outage, Parts, Row};

pub(crate) struct Kcl3 {
    parts: Parts<Lease, Task>,
    by: By,
    workers: BTreeMap<usize, Worker>,
    /// A crashed worker's report counts until it is stale.
    metrics: BTreeMap<usize, Metric>,
    leader: Option<Leader>,
    /// The CPU load of one lease's processor, in percent of a worker.
    cpu_of_lease: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// `LeaseCountBasedLeaseAssignmentDecider`
    Count,
    /// `VarianceBasedLeaseAssignmentDecider`
    Variance,
}

#[derive(Default, Clone)]
pub(crate) struct Lease {
    /// During a hand-over, the next owner.
    owner: Option<usize>,
    /// `checkpointOwner`: the worker that processes the lease until the end of a hand-over.
    hands_over: Option<usize>,
    counter: u64,
    /// Whether the row is at `SHARD_END`. Such a row has no owner.
    has_ended: bool,
}

struct Worker {
    /// The worker may have lost a lease without noticing.
    holds: BTreeSet<usize>,
    shutting_down: BTreeSet<usize>,
}

struct Metric {
    cpu: f64,
    reported: Millis,
}

struct Leader {
    worker: usize,
    runs: u64,
    seen: BTreeMap<usize, (u64, Millis)>,
}

pub(crate) enum Task {
    Wake(usize),
    Renew(usize),
    Discover(usize),
    Report(usize),
    ShutDown(usize, usize),
    Assign(usize),
    Beat(usize),
    Expire(usize),
    Elect,
}

impl Kcl3 {
    pub(crate) fn new(by: By, leases: usize, workers: usize, seed: u64) -> Self {
        Self {
            parts: Parts::new(leases, seed, Task::Wake, Task::Expire),
            by,
            workers: BTreeMap::new(),
            metrics: BTreeMap::new(),
            leader: None,
            // A worker that holds exactly its share has a load of 50 %.
            cpu_of_lease: 50.0 * whole(workers) / whole(leases),
        }
    }

    /// If a row names this worker as `checkpointOwner`, its processor starts to shut down.
    fn renew(&mut self, worker: usize, now: Millis) {
        let holds = self.workers[&worker].holds.clone();
        for lease in holds {
            self.parts.costs.writes += 1;
            let row = &mut self.parts.leases[lease];
            let me = self.workers.get_mut(&worker).unwrap();
            if row.hands_over == Some(worker) {
                row.counter += 1;
                if me.shutting_down.insert(lease) {
                    self.parts.agenda.at(now + HAND_OVER, Task::ShutDown(worker, lease));
                }
            } else if row.owner == Some(worker) && row.hands_over.is_none() {
                row.counter += 1;
            } else {
                me.holds.remove(&lease);
                me.shutting_down.remove(&lease);
                self.parts.readers.stop(lease, worker);
            }
        }
    }

    fn shut_down(&mut self, worker: usize, lease: usize) {
        let me = self.workers.get_mut(&worker).unwrap();
        if !me.shutting_down.remove(&lease) {
            return;
        }
        me.holds.remove(&lease);
        self.parts.readers.stop(lease, worker);
        let row = &mut self.parts.leases[lease];
        if row.hands_over == Some(worker) {
            self.parts.costs.writes += 1;
            row.hands_over = None;
            row.counter += 1;
        }
    }

    /// `LeaseDiscoverer`: one query of the owner index.
    fn discover(&mut self, worker: usize) {
        self.parts.costs.reads += 1;
        for (lease, row) in self.parts.leases.iter().enumerate() {
            if row.owner == Some(worker) && row.hands_over.is_none() {
                let me = self.workers.get_mut(&worker).unwrap();
                if me.holds.insert(lease) {
                    self.parts.readers.start(lease, worker);
                }
            }
        }
    }

    fn report(&mut self, worker: usize, now: Millis) {
        self.parts.costs.writes += 1;
        let holds = whole(self.workers[&worker].holds.len());
        let noise = self.parts.random.random_range(0.97..1.03);
        let cpu = (IDLE_CPU + self.cpu_of_lease * holds) * noise;
        let before = self.metrics.get(&worker).map_or(cpu, |metric| metric.cpu);
        let cpu = ALPHA * cpu + (1.0 - ALPHA) * before;
        self.metrics.insert(worker, Metric { cpu, reported: now });
    }

    fn elect(&mut self, now: Millis) {
        let there: Vec<_> = self.workers.keys().copied().collect();
        if self.leader.is_some() || there.is_empty() {
            return;
        }
        let worker = there[self.parts.random.random_range(0..there.len())];
        self.leader = Some(Leader { worker, runs: 0, seen: BTreeMap::new() });
        self.parts.agenda.at(now, Task::Assign(worker));
        self.parts.agenda.at(now, Task::Beat(worker));
    }

    fn leads(&self, worker: usize) -> bool {
        self.leader.as_ref().is_some_and(|leader| leader.worker == worker)
    }

    fn remove(&mut self, worker: usize, new_leader_after: Millis, now: Millis) {
        self.parts.away.remove(&worker);
        self.workers.remove(&worker);
        self.parts.readers.stop_all(worker);
        if self.leads(worker) {
            self.leader = None;
            self.parts.agenda.at(now + new_leader_after, Task::Elect);
        }
    }
}

impl Task {
    fn store_interval(&self) -> Option<Millis> {
        match self {
            Self::Renew(_) => Some(RENEWER),
            Self::Discover(_) => Some(DISCOVERY),
            Self::Report(_) => Some(REPORT),
            _ => None,
        }
    }

    fn worker(&self) -> Option<usize> {
        match self {
            Self::Elect => None,
            Self::Wake(worker)
            | Self::Renew(worker)
            | Self::Discover(worker)
            | Self::Report(worker)
            | Self::ShutDown(worker, _)
            | Self::Assign(worker)
            | Self::Beat(worker)
            | Self::Expire(worker) => Some(*worker),
        }
    }
}

impl Model for Kcl3 {
    type Row = Lease;
    type Task = Task;

    fn parts(&mut self) -> &mut Parts<Lease, Task> {
        &mut self.parts
    }

    fn forget_leases(&mut self) {
        for worker in self.workers.values_mut() {
            worker.holds.clear();
            worker.shutting_down.clear();
        }
    }
}

impl Row for Lease {
    fn has_ended(&self) -> bool {
        self.has_ended
    }

    fn end(&mut self) {
        *self = Self { has_ended: true, ..Self::default() };
    }
}

impl Fleet for Kcl3 {
    fn next(&self) -> Option<Millis> {
        self.parts.agenda.next()
    }

    fn step(&mut self, now: Millis) {
        while let Some((when, task)) = self.parts.agenda.due(now) {
            if let Some(worker) = task.worker() {
                let Some(Outage { paused_until, cut_until }) = self.parts.away.get(&worker) else {
                    continue;
                };
                if *paused_until > when {
                    self.parts.agenda.at(*paused_until, task);
                    continue;
                }
                if let Some(interval) = task.store_interval().filter(|_| *cut_until > when) {
                    self.parts.agenda.at(when + interval, task);
                    continue;
                }
            }
            match task {
                Task::Wake(worker) => {
                    for lease in &self.workers[&worker].holds {
                        self.parts.readers.resume(*lease, worker);
                    }
                }
                Task::Renew(worker) => {
                    self.renew(worker, when);
                    self.parts.agenda.at(when + RENEWER, task);
                }
                Task::Discover(worker) => {
                    self.discover(worker);
                    self.parts.agenda.at(when + DISCOVERY, task);
                }
                Task::Report(worker) => {
                    self.report(worker, when);
                    self.parts.agenda.at(when + REPORT, task);
                }
                Task::ShutDown(worker, lease) => self.shut_down(worker, lease),
                Task::Assign(worker) if self.leads(worker) => {
                    self.assign_all(when);
                    self.parts.agenda.at(when + ASSIGNMENT, task);
                }
                Task::Beat(worker) if self.leads(worker) => {
                    self.parts.costs.writes += 1;
                    self.parts.agenda.at(when + LOCK_HEARTBEAT, task);
                }
                Task::Assign(_) | Task::Beat(_) => (),
                Task::Expire(worker) => {
                    let me = self.workers.get_mut(&worker).unwrap();
                    me.holds.clear();
                    me.shutting_down.clear();
                    self.parts.readers.stop_all(worker);
                }
                Task::Elect => self.elect(when),
            }
        }
    }

    fn join(&mut self, now: Millis, worker: usize) {
        let (holds, shutting_down) = (BTreeSet::new(), BTreeSet::new());
        self.parts.away.insert(worker, Outage::default());
        self.workers.insert(worker, Worker { holds, shutting_down });
        let is_new = self.parts.leases.iter().all(|lease| lease.owner.is_none());
        // As in version 2, a worker sleeps for up to half a minute at its start if the table is
        // empty.
        let delay = self.parts.random.random_range(if is_new { 1_000..30_000 } else { 0..1_000 });
        let begins = now + delay;
        if is_new && self.workers.len() == 1 {
            self.parts.agenda.at(begins, Task::Elect);
        }
        self.parts.agenda.at(begins, Task::Renew(worker));
        self.parts.agenda.at(begins, Task::Discover(worker));
        self.parts
            .agenda
            .at(begins + self.parts.random.random_range(0..REPORT), Task::Report(worker));
    }

    fn crash(&mut self, now: Millis, worker: usize) {
        let new_leader_after = self.parts.random.random_range(TAKEOVER);
        self.remove(worker, new_leader_after, now);
    }

    /// A stopping worker releases the leader's lock, but not its leases.
    fn leave(&mut self, now: Millis, worker: usize) {
        let new_leader_after = self.parts.random.random_range(0..LOCK_HEARTBEAT);
        self.remove(worker, new_leader_after, now);
    }

    fn leader(&self) -> Option<usize> {
        self.leader.as_ref().map(|leader| leader.worker)
    }

    fn who_reads(&self) -> &Readers {
        &self.parts.readers
    }

    fn costs(&self) -> Costs {
        self.parts.costs
    }
}

#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn whole(number: usize) -> f64 {
    number as f64
}

/// The interval is the same as in version 2.
const RENEWER: Millis = FAILOVER / 3 - EPSILON;

const EPSILON: Millis = 25;

/// The assignment manager's interval: twice the failover time.
const ASSIGNMENT: Millis = 2 * FAILOVER;

/// `LeaseDiscoverer`: half of the assignment's interval, less epsilon.
const DISCOVERY: Millis = ASSIGNMENT / 2 - EPSILON;

/// `workerMetricsReporterFreqInMillis`
const REPORT: Millis = 30_000;

/// `workerMetricsEMAAlpha`
const ALPHA: f64 = 0.5;

/// `DynamoDBLockBasedLeaderDecider`: the lock has a lease of 120 s and a heartbeat every 30 s.
/// `TAKEOVER` is the resulting time to a new leader.
const LOCK_HEARTBEAT: Millis = 30_000;
const TAKEOVER: std::ops::Range<Millis> = 120_000..165_000;

/// An assumption that is the same for all rules.
const HAND_OVER: Millis = 2_000;

/// An assumption, in percent.
const IDLE_CPU: f64 = 2.0;
