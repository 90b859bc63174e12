//! The interface of a simulated fleet. Each rule by which workers share leases implements it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Milliseconds since the fleet's first moment.
pub(crate) type Millis = u64;

/// Disturbances of workers and leases.
pub(crate) trait Disturbances {
    /// A worker pauses without noticing it, as in a long garbage collection.
    fn pause(&mut self, now: Millis, worker: usize, length: Millis);
    /// A worker cannot reach the store for a while.
    fn cut(&mut self, now: Millis, worker: usize, length: Millis);
    /// Each readable lease is split into two leases.
    fn split_all(&mut self, now: Millis);
    /// Readable leases are merged in pairs.
    fn merge_all(&mut self, now: Millis);
}

/// A fleet of workers that share leases. A number names each worker and each lease.
pub(crate) trait Fleet: Disturbances {
    /// Returns the time at which the next step is due.
    fn next(&self) -> Option<Millis>;
    /// Runs all steps due by `now`. Time never decreases.
    fn step(&mut self, now: Millis);
    /// A new worker joins.
    fn join(&mut self, now: Millis, worker: usize);
    /// A worker crashes.
    fn crash(&mut self, now: Millis, worker: usize);
    /// A worker stops after SIGTERM.
    fn leave(&mut self, now: Millis, worker: usize);
    /// Returns the leader, if the rule has one.
    fn leader(&self) -> Option<usize>;
    /// Returns the readers of each lease.
    fn who_reads(&self) -> &Readers;
    /// Returns the requests to the store since the start.
    fn costs(&self) -> Costs;
    /// Returns the measures that exist only for real workers.
    fn observed(&self) -> Option<Observed> {
        None
    }
}

/// Observations of real workers since the start.
#[derive(Debug, Default, Clone)]
pub(crate) struct Observed {
    /// For each start of a reader, the time for which the lease had no reader.
    pub(crate) idle: Vec<Millis>,
    /// For each start of a reader, the time from the stop of the last reader to the first processed record.
    pub(crate) first_records: Vec<Millis>,
    /// Records that were processed again.
    pub(crate) replayed: u64,
    /// Old records that were not processed.
    pub(crate) unread: usize,
    /// Shards that were read before their parents had ended.
    pub(crate) before_parents: u64,
    /// Writes that the store accepted from a former holder.
    pub(crate) stale_writes: u64,
    /// Claims that found the lease held.
    pub(crate) failed_claims: u64,
    /// The ticks of all present workers.
    pub(crate) ticks: u64,
}

/// The workers that read each lease.
#[derive(Debug)]
pub(crate) struct Readers {
    now: Vec<BTreeSet<usize>>,
    last: Vec<Option<usize>>,
    /// Whether each lease is readable: neither ended nor waiting for a parent.
    open: Vec<bool>,
    moves: usize,
    changes: u64,
}

/// The requests to the store.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Costs {
    /// The number of rows that were read, alone or in a list.
    pub(crate) reads: u64,
    pub(crate) writes: u64,
}

impl Readers {
    pub(crate) fn none(leases: usize) -> Self {
        let (now, last, open) =
            (vec![BTreeSet::new(); leases], vec![None; leases], vec![true; leases]);
        Self { now, last, open, moves: 0, changes: 0 }
    }

    /// Adds a lease that is not readable yet.
    pub(crate) fn make(&mut self, lease: usize) {
        let leases = self.now.len().max(lease + 1);
        self.now.resize_with(leases, BTreeSet::new);
        self.last.resize(leases, None);
        self.open.resize(leases, false);
    }

    /// Makes a lease readable. Returns whether the lease was not readable before.
    pub(crate) fn open(&mut self, lease: usize) -> bool {
        self.changes += 1;
        !std::mem::replace(&mut self.open[lease], true)
    }

    /// Ends a lease.
    pub(crate) fn close(&mut self, lease: usize) {
        self.changes += 1;
        self.open[lease] = false;
        self.now[lease].clear();
    }

    /// Returns the number of readers of each readable lease.
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

    /// Notes that a paused worker reads again, even if another worker started to read during the pause.
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

    /// Returns the readers of each lease.
    pub(crate) fn all(&self) -> &[BTreeSet<usize>] {
        &self.now
    }

    /// Returns the number of starts by a worker that was not the last reader of the lease.
    pub(crate) fn moves(&self) -> usize {
        self.moves
    }

    /// Returns the number of starts and stops of readers.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }
}

/// Scheduled entries, ordered by time. Entries with the same time keep their order of insertion.
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

    /// Removes the next entry due by `now`, and returns it with its time.
    pub(crate) fn due(&mut self, now: Millis) -> Option<(Millis, T)> {
        let entry = self.entries.first_entry().filter(|entry| entry.key().0 <= now)?;
        let ((when, _), what) = entry.remove_entry();
        Some((when, what))
    }
}

/// Sorts the workers by their number of leases, largest first.
pub(crate) fn by_count(counts: &BTreeMap<usize, usize>) -> Vec<(usize, usize)> {
    let mut sorted: Vec<_> = counts.iter().map(|(worker, count)| (*worker, *count)).collect();
    sorted.sort_by_key(|(worker, count)| (Reverse(*count), *worker));
    sorted
}
