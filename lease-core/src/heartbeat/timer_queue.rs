//! The time at which the heartbeater looks at each lease next.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::hint::black_box;
use std::time::Duration;

use crate::clock::Moment;

/// A calendar queue with one moment per index. Later entries lie unordered in slots of time. A slot
/// is sorted when it opens. A new moment of an index leaves the old entry in place, and the queue
/// skips the old entry later. So no call has to search for an entry.
pub(crate) struct TimerQueue {
    /// The moment of each index; `NEVER` if the index has none. An entry with another moment is outdated.
    moments: Vec<Moment>,
    /// The entries up to the end of `open_slot`, the earliest first.
    near: BinaryHeap<Entry>,
    /// The slot whose entries are in `near`. If the queue has few entries, the slot may be far
    /// ahead. `near` then also has entries of earlier slots.
    open_slot: u64,
    far: BTreeMap<u64, Vec<Entry>>,
    slot: u64,
    entries: usize,
    room: usize,
}

type Entry = Reverse<(Moment, usize)>;

impl TimerQueue {
    /// Makes a queue for moments that are up to some hundred times `slot` ahead.
    pub(crate) fn new(slot: Duration) -> Self {
        Self {
            moments: Vec::new(),
            near: BinaryHeap::new(),
            open_slot: 0,
            far: BTreeMap::new(),
            slot: u64::try_from(slot.as_nanos()).unwrap_or(u64::MAX).max(1),
            entries: 0,
            room: LEAST_ROOM,
        }
    }

    pub(crate) fn set(&mut self, index: usize, moment: Moment) {
        if self.moments.len() <= index {
            self.moments.resize(index + 1, NEVER);
        }
        let Some(known) = self.moments.get_mut(index) else { return };
        if *known == moment {
            return;
        }
        *known = moment;
        if self.entries >= self.room {
            self.sweep();
        }
        self.entries += 1;
        let slot = moment.as_nanos() / self.slot;
        if slot <= self.open_slot {
            self.near.push(Reverse((moment, index)));
        } else {
            self.far.entry(slot).or_default().push(Reverse((moment, index)));
        }
    }

    /// Reads the moments of `indices`, so that the processor waits for the memory of many moments
    /// at the same time.
    pub(crate) fn prefetch(&self, indices: impl Iterator<Item = usize>) {
        for index in indices {
            black_box(self.moments.get(index).copied());
        }
    }

    pub(crate) fn clear(&mut self, index: usize) {
        if let Some(known) = self.moments.get_mut(index) {
            *known = NEVER;
        }
    }

    pub(crate) fn first(&mut self) -> Option<Moment> {
        loop {
            while let Some(&entry) = self.near.peek() {
                if self.is_current(entry) {
                    return Some(entry.0.0);
                }
                self.near.pop();
                self.entries -= 1;
            }
            let (slot, entries) = self.far.pop_first()?;
            self.open_slot = slot;
            self.near = entries.into();
        }
    }

    /// Removes and returns the indices that are due at `horizon`, in any order.
    pub(crate) fn take(&mut self, horizon: Moment) -> Vec<usize> {
        let mut due = Vec::new();
        while self.first().is_some_and(|moment| moment <= horizon) {
            let mut later = std::mem::take(&mut self.near).into_vec();
            self.entries -= later.len();
            later.retain(|&entry| {
                let (Reverse((moment, index)), is_current) = (entry, self.is_current(entry));
                let is_due = is_current && moment <= horizon;
                if is_due {
                    due.push(index);
                    self.clear(index);
                }
                is_current && !is_due
            });
            self.entries += later.len();
            self.near = later.into();
        }
        due
    }

    fn is_current(&self, Reverse((moment, index)): Entry) -> bool {
        self.moments.get(index) == Some(&moment)
    }

    /// Removes outdated entries. Rare duplicates of current entries stay.
    fn sweep(&mut self) {
        let moments = &self.moments;
        let is_current = |Reverse((moment, index)): &Entry| moments.get(*index) == Some(moment);
        self.near.retain(is_current);
        self.far.retain(|_, entries| {
            entries.retain(is_current);
            entries.shrink_to(2 * entries.len());
            !entries.is_empty()
        });
        self.entries = self.near.len() + self.far.values().map(Vec::len).sum::<usize>();
        self.room = LEAST_ROOM.max(2 * self.entries);
    }
}

const NEVER: Moment = Moment::from_nanos(u64::MAX);

const LEAST_ROOM: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    const SLOT: Duration = Duration::from_millis(10);

    fn at(millis: u64) -> Moment {
        Moment::from_nanos(0) + Duration::from_millis(millis)
    }

    fn taken(queue: &mut TimerQueue, horizon: Moment) -> Vec<usize> {
        let mut taken = queue.take(horizon);
        taken.sort_unstable();
        taken
    }

    #[test]
    fn due_indices_are_taken_and_later_ones_stay() {
        let mut queue = TimerQueue::new(SLOT);
        for (index, moment) in [(0, 25), (1, 7), (2, 1000), (3, 3), (4, 26)] {
            queue.set(index, at(moment));
        }

        assert_eq!(queue.first(), Some(at(3)));
        assert_eq!(taken(&mut queue, at(25)), [0, 1, 3]);
        assert_eq!(queue.first(), Some(at(26)));
        // The first moment is in the open slot, the second moment is in an earlier slot.
        queue.set(5, at(24));
        queue.set(6, at(2));
        assert_eq!(taken(&mut queue, at(1000)), [2, 4, 5, 6]);
        assert_eq!(queue.first(), None);
    }

    #[test]
    fn last_moment_of_index_counts() {
        let mut queue = TimerQueue::new(SLOT);
        for (first, last) in [(5, 500), (500, 5), (5, 6), (500, 501)] {
            queue.set(0, at(first));
            queue.set(0, at(last));

            assert_eq!(queue.first(), Some(at(last)));
            assert_eq!(taken(&mut queue, at(1000)), [0]);
        }
    }

    #[test]
    fn index_set_twice_to_one_moment_is_taken_once() {
        let mut queue = TimerQueue::new(SLOT);
        for moment in [5, 500, 5, 5] {
            queue.set(0, at(moment));
        }

        assert_eq!(taken(&mut queue, at(1000)), [0]);
    }

    #[test]
    fn cleared_index_is_not_taken() {
        let mut queue = TimerQueue::new(SLOT);
        queue.set(0, at(5));
        queue.set(1, at(500));
        queue.clear(0);
        queue.clear(1);
        queue.clear(7);

        assert_eq!(queue.first(), None);
    }

    #[test]
    fn outdated_entries_are_removed() {
        let mut queue = TimerQueue::new(SLOT);
        let (last, ten) = (1_000_000, LEAST_ROOM * 10);
        for round in 0..last {
            queue.set(round % 10, at(60_000 + u64::try_from(round).unwrap()));
            assert!(queue.entries <= LEAST_ROOM, "after {round} rounds");
        }

        assert_eq!(taken(&mut queue, at(u64::MAX)).len(), 10);
        assert!(queue.near.capacity() < ten && queue.far.is_empty());
    }
}
