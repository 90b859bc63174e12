//! What can be compared: workers that share leases among them, by whatever rule.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Milliseconds since the fleet's first moment.
pub(crate) type Millis = u64;

/// What befalls workers and their leases.
pub(crate) trait Fate {
    /// A worker stands still for a while, and does not know it: a long collection of garbage.
    fn pause(&mut self, now: Millis, worker: usize, length: Millis);
    /// A worker is kept from the store for a while, and from nothing else.
    fn cut(&mut self, now: Millis, worker: usize, length: Millis);
    /// Each lease that can be read becomes two.
    fn split_all(&mut self, now: Millis);
    /// Each two leases that can be read become one.
    fn merge_all(&mut self, now: Millis);
}

/// Workers by number, and leases from 0 on.
pub(crate) trait Fleet: Fate {
    /// When something is due that nobody asked for; `None` where nothing is.
    fn next(&self) -> Option<Millis>;
    /// Does what is due by `now`. Time never goes back.
    fn step(&mut self, now: Millis);
    /// A worker that was never there is there.
    fn join(&mut self, now: Millis, worker: usize);
    /// A worker is gone, without a word.
    fn crash(&mut self, now: Millis, worker: usize);
    /// A worker is asked to go: SIGTERM.
    fn leave(&mut self, now: Millis, worker: usize);
    /// On whom the others depend, where there is such a one.
    fn leader(&self) -> Option<usize>;
    /// For each lease, who reads it now.
    fn who_reads(&self) -> &Readers;
    /// What was asked of the store since the first moment.
    fn costs(&self) -> Costs;
    /// What a model does not have.
    fn seen(&self) -> Option<Seen> {
        None
    }
}

/// What was seen of real workers since the first moment.
#[derive(Debug, Default, Clone)]
pub(crate) struct Seen {
    /// Of each lease that began to be read: how long nobody had.
    pub(crate) idle: Vec<Millis>,
    /// The same, to the first record that was worked on.
    pub(crate) first_records: Vec<Millis>,
    /// Records that were worked on once more.
    pub(crate) replayed: u64,
    /// Records that nobody has worked on, though they are old.
    pub(crate) never_worked_on: usize,
    /// Shards that were begun before their parents had ended.
    pub(crate) before_parents: u64,
    /// Writes, of checkpoints and else, that the store took from who was not the last to be granted
    /// the lease.
    pub(crate) stale_writes: u64,
    /// Claims that found the lease held.
    pub(crate) failed_claims: u64,
    /// Of all workers that are there.
    pub(crate) ticks: u64,
}

/// For each lease, the workers that read it.
#[derive(Debug)]
pub(crate) struct Readers {
    now: Vec<BTreeSet<usize>>,
    last: Vec<Option<usize>>,
    /// Which of them can be read: neither ended nor waiting for another's end.
    open: Vec<bool>,
    moves: usize,
    changes: u64,
}

/// What was asked of the store.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Costs {
    /// Items, whether alone or in a list.
    pub(crate) reads: u64,
    pub(crate) writes: u64,
}

impl Readers {
    pub(crate) fn none(leases: usize) -> Self {
        let (now, last, open) =
            (vec![BTreeSet::new(); leases], vec![None; leases], vec![true; leases]);
        Self { now, last, open, moves: 0, changes: 0 }
    }

    /// There is a lease of this number, which cannot be read yet.
    pub(crate) fn make(&mut self, lease: usize) {
        let leases = self.now.len().max(lease + 1);
        self.now.resize_with(leases, BTreeSet::new);
        self.last.resize(leases, None);
        self.open.resize(leases, false);
    }

    /// It can be read; says whether it could not before.
    pub(crate) fn open(&mut self, lease: usize) -> bool {
        self.changes += 1;
        !std::mem::replace(&mut self.open[lease], true)
    }

    /// All of it was read.
    pub(crate) fn close(&mut self, lease: usize) {
        self.changes += 1;
        self.open[lease] = false;
        self.now[lease].clear();
    }

    /// How many read each that can be read.
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

    /// A worker that stood still goes on, whoever else has begun.
    pub(crate) fn go_on(&mut self, lease: usize, worker: usize) {
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

    /// By lease.
    pub(crate) fn all(&self) -> &[BTreeSet<usize>] {
        &self.now
    }

    /// How often a worker began with a lease that another had last, or nobody.
    pub(crate) fn moves(&self) -> usize {
        self.moves
    }

    /// Grows with each change.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }
}

/// What is to be done, in order of time; what is for the same moment, in the order of asking.
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

    /// The next entry that is due by `now`, and when it was.
    pub(crate) fn due(&mut self, now: Millis) -> Option<(Millis, T)> {
        let entry = self.entries.first_entry().filter(|entry| entry.key().0 <= now)?;
        let ((when, _), what) = entry.remove_entry();
        Some((when, what))
    }
}

/// The workers with the most leases first.
pub(crate) fn by_count(counts: &BTreeMap<usize, usize>) -> Vec<(usize, usize)> {
    let mut sorted: Vec<_> = counts.iter().map(|(worker, count)| (*worker, *count)).collect();
    sorted.sort_by_key(|(worker, count)| (Reverse(*count), *worker));
    sorted
}
