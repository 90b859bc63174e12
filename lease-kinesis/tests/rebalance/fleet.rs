//! The interface of a simulated fleet.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Since the fleet's first moment.
pub(crate) type Millis = u64;

pub(crate) trait Disturbances {
    /// The worker does not notice the pause, as in a long garbage collection.
    fn pause(&mut self, now: Millis, worker: usize, length: Millis);
    fn cut(&mut self, now: Millis, worker: usize, length: Millis);
    fn split_all(&mut self, now: Millis);
    /// Merges readable leases in pairs.
    fn merge_all(&mut self, now: Millis);
}

pub(crate) trait Fleet: Disturbances {
    fn next(&self) -> Option<Millis>;
    /// Runs all steps due by `now`. Time never decreases.
    fn step(&mut self, now: Millis);
    fn join(&mut self, now: Millis, worker: usize);
    fn crash(&mut self, now: Millis, worker: usize);
    fn leave(&mut self, now: Millis, worker: usize);
    fn leader(&self) -> Option<usize>;
    fn who_reads(&self) -> &Readers;
    fn costs(&self) -> Costs;
    fn observed(&self) -> Option<Observed> {
        None
    }
}

#[derive(Debug, Default, Clone)]
pub(crate) struct Observed {
    /// The time without a reader before each start of a reader.
    pub(crate) idle: Vec<Millis>,
    /// The time from the stop of the last reader to the first processed record, for each start of a reader.
    pub(crate) first_records: Vec<Millis>,
    pub(crate) replayed: u64,
    pub(crate) unread: usize,
    pub(crate) before_parents: u64,
    pub(crate) stale_writes: u64,
    pub(crate) failed_claims: u64,
    pub(crate) ticks: u64,
}

#[derive(Debug)]
pub(crate) struct Readers {
    now: Vec<BTreeSet<usize>>,
    last: Vec<Option<usize>>,
    open: Vec<bool>,
    moves: usize,
    changes: u64,
}

#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Costs {
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    /// DynamoDB's read units, in halves.
    pub(crate) half_units: u64,
}

impl Readers {
    pub(crate) fn none(leases: usize) -> Self {
        let (now, last, open) =
            (vec![BTreeSet::new(); leases], vec![None; leases], vec![true; leases]);
        Self { now, last, open, moves: 0, changes: 0 }
    }

    pub(crate) fn make(&mut self, lease: usize) {
        let leases = self.now.len().max(lease + 1);
        self.now.resize_with(leases, BTreeSet::new);
        self.last.resize(leases, None);
        self.open.resize(leases, false);
    }

    pub(crate) fn open(&mut self, lease: usize) -> bool {
        self.changes += 1;
        !std::mem::replace(&mut self.open[lease], true)
    }

    pub(crate) fn close(&mut self, lease: usize) {
        self.changes += 1;
        self.open[lease] = false;
        self.now[lease].clear();
    }

    pub(crate) fn counts(&self) -> impl Iterator<Item = u64> + Clone {
        let all = self.now.iter().zip(&self.open).filter(|(_, open)| **open);
        all.map(|(readers, _)| readers.len() as u64)
    }

    pub(crate) fn start(&mut self, lease: usize, worker: usize) {
        if self.now[lease].insert(worker) {
            self.changes += 1;
            self.moves += usize::from(self.last[lease].replace(worker) != Some(worker));
        }
    }

    /// Another worker may have started to read during the pause.
    pub(crate) fn resume(&mut self, lease: usize, worker: usize) {
        self.changes += u64::from(self.now[lease].insert(worker));
    }

    pub(crate) fn stop(&mut self, lease: usize, worker: usize) {
        self.changes += u64::from(self.now[lease].remove(&worker));
    }

    pub(crate) fn stop_all(&mut self, worker: usize) {
        for lease in 0..self.now.len() {
            self.stop(lease, worker);
        }
    }

    pub(crate) fn all(&self) -> &[BTreeSet<usize>] {
        &self.now
    }

    /// Starts by a worker that was not the last reader of the lease.
    pub(crate) fn moves(&self) -> usize {
        self.moves
    }

    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }
}

/// Entries with the same time keep their order of insertion.
#[derive(Debug)]
pub(crate) struct Agenda<T> {
    entries: BTreeMap<(Millis, u64), T>,
    asked: u64,
}

impl<T> Agenda<T> {
    pub(crate) fn new() -> Self {
        Self { entries: BTreeMap::new(), asked: 0 }
    }

    pub(crate) fn at(&mut self, when: Millis, what: T) {
        self.asked += 1;
        self.entries.insert((when, self.asked), what);
    }

    pub(crate) fn next(&self) -> Option<Millis> {
        self.entries.keys().next().map(|(when, _)| *when)
    }

    pub(crate) fn due(&mut self, now: Millis) -> Option<(Millis, T)> {
        let entry = self.entries.first_entry().filter(|entry| entry.key().0 <= now)?;
        let ((when, _), what) = entry.remove_entry();
        Some((when, what))
    }
}

pub(crate) fn by_count(counts: &BTreeMap<usize, usize>) -> Vec<(usize, usize)> {
    let mut sorted: Vec<_> = counts.iter().map(|(worker, count)| (*worker, *count)).collect();
    sorted.sort_by_key(|(worker, count)| (Reverse(*count), *worker));
    sorted
}
