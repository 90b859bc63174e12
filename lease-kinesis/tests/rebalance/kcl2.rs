//! The rule of the Kinesis Client Library 1 and 2: each worker takes leases for itself. Reimplements
//! `DynamoDBLeaseTaker`, `DynamoDBLeaseRenewer` and `LeaseCoordinator`.

use std::collections::{BTreeMap, BTreeSet};

use rand::RngExt;
use rand::seq::SliceRandom;

use crate::fleet::{Costs, Fleet, Millis, Readers, by_count};
use crate::model::{FAILOVER, Model, Outage, Parts, Row};

pub(crate) struct Kcl2 {
    parts: Parts<Lease, Task>,
    workers: BTreeMap<usize, Worker>,
    most_steals: usize,
}

#[derive(Default, Clone)]
pub(crate) struct Lease {
    owner: Option<usize>,
    counter: u64,
    /// Whether the row is at `SHARD_END`. Such a row does not count for its owner, as in later
    /// versions.
    has_ended: bool,
}

struct Worker {
    /// The worker may have lost a lease without noticing.
    holds: BTreeSet<usize>,
    seen: BTreeMap<usize, (u64, Millis)>,
}

pub(crate) enum Task {
    Wake(usize),
    Renew(usize),
    Take(usize),
    Expire(usize),
}

impl Kcl2 {
    pub(crate) fn new(leases: usize, seed: u64) -> Self {
        // `maxLeasesToStealAtOneTime`
        Self::stealing(1, leases, seed)
    }

    pub(crate) fn stealing(most_steals: usize, leases: usize, seed: u64) -> Self {
        Self {
            parts: Parts::new(leases, seed, Task::Wake, Task::Expire),
            workers: BTreeMap::new(),
            most_steals,
        }
    }

    /// `DynamoDBLeaseRenewer`: renews a lease unless another worker wrote to the row.
    fn renew(&mut self, worker: usize) {
        let holds = self.workers[&worker].holds.clone();
        for lease in holds {
            self.parts.costs.writes += 1;
            let row = &mut self.parts.leases[lease];
            if row.owner == Some(worker) {
                row.counter += 1;
            } else {
                self.workers.get_mut(&worker).unwrap().holds.remove(&lease);
                self.parts.readers.stop(lease, worker);
            }
        }
    }

    /// `DynamoDBLeaseTaker.takeLeases`: a scan, then one write for each taken lease.
    fn take(&mut self, worker: usize, now: Millis) {
        self.parts.costs.reads += self.parts.leases.len() as u64;
        let me = self.workers.get_mut(&worker).unwrap();
        let (mut expired, mut very_old) = (Vec::new(), Vec::new());
        let mut counts = BTreeMap::from([(worker, 0)]);
        for (lease, row) in self.parts.leases.iter().enumerate() {
            if row.has_ended {
                continue;
            }
            let Some(owner) = row.owner else {
                // A lease without an owner counts as renewed at time 0.
                very_old.push(lease);
                continue;
            };
            let (counter, since) = me.seen.entry(lease).or_insert((row.counter, now));
            if *counter != row.counter {
                (*counter, *since) = (row.counter, now);
            }
            if now - *since > VERY_OLD {
                very_old.push(lease);
            } else if now - *since > FAILOVER {
                expired.push(lease);
            } else {
                *counts.entry(owner).or_default() += 1;
            }
        }
        let mut taken = if very_old.is_empty() {
            // `computeLeasesToTake`
            let open = self.parts.leases.iter().filter(|lease| !lease.has_ended).count();
            let target = open.div_ceil(counts.len()).max(1);
            let need = target.saturating_sub(counts[&worker]);
            if expired.is_empty() {
                self.stolen(worker, need, target, &counts)
            } else {
                expired.shuffle(&mut self.parts.random);
                expired.truncate(need);
                expired
            }
        } else {
            // The target does not limit these leases, and `maxLeasesForWorker` is unlimited.
            very_old
        };
        taken.sort_unstable();
        for lease in taken {
            self.parts.costs.writes += 1;
            let row = &mut self.parts.leases[lease];
            row.owner = Some(worker);
            row.counter += 1;
            let me = self.workers.get_mut(&worker).unwrap();
            me.seen.insert(lease, (row.counter, now));
            me.holds.insert(lease);
            self.parts.readers.start(lease, worker);
        }
    }

    /// `chooseLeasesToSteal`: the leases to steal from the worker with the most leases.
    fn stolen(
        &mut self,
        worker: usize,
        need: usize,
        target: usize,
        counts: &BTreeMap<usize, usize>,
    ) -> Vec<usize> {
        let (victim, has) = by_count(counts)[0];
        if victim == worker || has < target || need == 0 {
            return Vec::new();
        }
        let mut count = need.min(has - target);
        // "Steal 1 if we need > 1 and the most loaded worker has target leases."
        if need > 1 && count == 0 {
            count = 1;
        }
        let owned = |lease: &usize| {
            let row = &self.parts.leases[*lease];
            row.owner == Some(victim) && !row.has_ended
        };
        let mut its: Vec<_> = (0..self.parts.leases.len()).filter(owned).collect();
        its.shuffle(&mut self.parts.random);
        its.truncate(count.min(self.most_steals));
        its
    }
}

impl Model for Kcl2 {
    type Row = Lease;
    type Task = Task;

    fn parts(&mut self) -> &mut Parts<Lease, Task> {
        &mut self.parts
    }

    fn forget_leases(&mut self) {
        self.workers.values_mut().for_each(|worker| worker.holds.clear());
    }
}

impl Row for Lease {
    fn has_ended(&self) -> bool {
        self.has_ended
    }

    fn end(&mut self) {
        self.has_ended = true;
    }
}

impl Fleet for Kcl2 {
    fn next(&self) -> Option<Millis> {
        self.parts.agenda.next()
    }

    fn step(&mut self, now: Millis) {
        while let Some((when, task)) = self.parts.agenda.due(now) {
            let (Task::Wake(worker)
            | Task::Renew(worker)
            | Task::Take(worker)
            | Task::Expire(worker)) = task;
            let Some(Outage { paused_until, cut_until }) = self.parts.away.get(&worker) else {
                continue;
            };
            let is_cut = *cut_until > when;
            if *paused_until > when {
                self.parts.agenda.at(*paused_until, task);
                continue;
            }
            match task {
                Task::Wake(worker) => {
                    for lease in &self.workers[&worker].holds {
                        self.parts.readers.resume(*lease, worker);
                    }
                }
                Task::Renew(worker) => {
                    if !is_cut {
                        self.renew(worker);
                    }
                    self.parts.agenda.at(when + RENEWER, task);
                }
                Task::Take(worker) => {
                    if !is_cut {
                        self.take(worker, when);
                    }
                    self.parts.agenda.at(when + TAKER, task);
                }
                Task::Expire(worker) => {
                    self.workers.get_mut(&worker).unwrap().holds.clear();
                    self.parts.readers.stop_all(worker);
                }
            }
        }
    }

    fn join(&mut self, now: Millis, worker: usize) {
        let (holds, seen) = (BTreeSet::new(), BTreeMap::new());
        self.parts.away.insert(worker, Outage::default());
        self.workers.insert(worker, Worker { holds, seen });
        let is_new = self.parts.leases.iter().all(|lease| lease.owner.is_none());
        // If the table is empty, each worker sleeps for up to half a minute before it creates the leases.
        let delay = self.parts.random.random_range(if is_new { 1_000..30_000 } else { 0..1_000 });
        self.parts.agenda.at(now + delay, Task::Take(worker));
        self.parts.agenda.at(now + delay, Task::Renew(worker));
    }

    fn crash(&mut self, _: Millis, worker: usize) {
        self.parts.away.remove(&worker);
        self.workers.remove(&worker);
        self.parts.readers.stop_all(worker);
    }

    /// No version of KCL releases leases when it stops.
    fn leave(&mut self, now: Millis, worker: usize) {
        self.crash(now, worker);
    }

    fn leader(&self) -> Option<usize> {
        None
    }

    fn who_reads(&self) -> &Readers {
        &self.parts.readers
    }

    fn costs(&self) -> Costs {
        self.parts.costs
    }
}

/// `EPSILON_MILLIS`
const EPSILON: Millis = 25;

/// `LeaseManagementConfig`: a third of the failover time, less epsilon.
const RENEWER: Millis = FAILOVER / 3 - EPSILON;

/// `takerIntervalMillis`: twice the failover time and epsilon.
const TAKER: Millis = (FAILOVER + EPSILON) * 2;

/// `veryOldLeaseDurationNanosMultiplier`: 3
const VERY_OLD: Millis = 3 * FAILOVER;
