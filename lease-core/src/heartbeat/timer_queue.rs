//! When to look at which of many things again.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::hint::black_box;
use std::time::Duration;

use crate::clock::Moment;

/// The moment of each place, and which is the earliest.
///
/// In a calendar: what is due in a while lies in the slot of its time, in no order, and is put in
/// order when that time comes. A moment that has changed stays where it was written until then, and
/// is passed over: so nothing is ever searched for.
pub(crate) struct Timetable {
    /// By place; `NEVER` where there is none. An entry that says otherwise is passed over.
    moments: Vec<Moment>,
    /// Up to the end of the slot `opened`, the earliest first.
    near: BinaryHeap<Entry>,
    /// Far ahead where little is put down: what comes before it is then in one heap for a while.
    opened: u64,
    /// By slot, all after `opened`.
    far: BTreeMap<u64, Vec<Entry>>,
    /// The length of a slot in nanoseconds.
    slot: u64,
    entries: usize,
    /// So many may there be before those that are passed over are swept out.
    room: usize,
}

/// When, and which place: the earliest is the greatest.
type Entry = Reverse<(Moment, usize)>;

impl Timetable {
    /// For moments that are up to some hundred times `slot` ahead.
    pub(crate) fn new(slot: Duration) -> Self {
        Self {
            moments: Vec::new(),
            near: BinaryHeap::new(),
            opened: 0,
            far: BTreeMap::new(),
            slot: u64::try_from(slot.as_nanos()).unwrap_or(u64::MAX).max(1),
            entries: 0,
            room: LEAST_ROOM,
        }
    }

    /// Puts `place` down for `moment`, and for no other.
    pub(crate) fn set(&mut self, place: usize, moment: Moment) {
        if self.moments.len() <= place {
            self.moments.resize(place + 1, NEVER);
        }
        let Some(known) = self.moments.get_mut(place) else { return };
        if *known == moment {
            return;
        }
        *known = moment;
        if self.entries >= self.room {
            self.sweep();
        }
        self.entries += 1;
        let slot = moment.as_nanos() / self.slot;
        if slot <= self.opened {
            self.near.push(Reverse((moment, place)));
        } else {
            self.far.entry(slot).or_default().push(Reverse((moment, place)));
        }
    }

    /// Looks up `places`, all before any of them is set: so the processor waits for the memory of many
    /// at the same time.
    pub(crate) fn have_at_hand(&self, places: impl Iterator<Item = usize>) {
        for place in places {
            black_box(self.moments.get(place).copied());
        }
    }

    pub(crate) fn clear(&mut self, place: usize) {
        if let Some(known) = self.moments.get_mut(place) {
            *known = NEVER;
        }
    }

    /// The earliest moment of all.
    pub(crate) fn first(&mut self) -> Option<Moment> {
        loop {
            while let Some(&entry) = self.near.peek() {
                if self.is_meant(entry) {
                    return Some(entry.0.0);
                }
                self.near.pop();
                self.entries -= 1;
            }
            let (slot, entries) = self.far.pop_first()?;
            self.opened = slot;
            self.near = entries.into();
        }
    }

    /// Takes the places that are due at `horizon`, those of one slot in no order: they have no moment
    /// any more.
    pub(crate) fn take(&mut self, horizon: Moment) -> Vec<usize> {
        let mut due = Vec::new();
        while self.first().is_some_and(|moment| moment <= horizon) {
            // A slot is due as a whole, or nearly so: to take one after the other would sort it.
            let mut later = std::mem::take(&mut self.near).into_vec();
            self.entries -= later.len();
            later.retain(|&entry| {
                let (Reverse((moment, place)), is_meant) = (entry, self.is_meant(entry));
                let is_due = is_meant && moment <= horizon;
                if is_due {
                    due.push(place);
                    self.clear(place);
                }
                is_meant && !is_due
            });
            self.entries += later.len();
            self.near = later.into();
        }
        due
    }

    fn is_meant(&self, Reverse((moment, place)): Entry) -> bool {
        self.moments.get(place) == Some(&moment)
    }

    /// What came and went long before its time would else be here until then. Of the entries for a
    /// moment that is meant, all stay: a place that came back to one again and again would fill it.
    fn sweep(&mut self) {
        let moments = &self.moments;
        let is_meant = |Reverse((moment, place)): &Entry| moments.get(*place) == Some(moment);
        self.near.retain(is_meant);
        self.far.retain(|_, entries| {
            entries.retain(is_meant);
            entries.shrink_to(2 * entries.len());
            !entries.is_empty()
        });
        self.entries = self.near.len() + self.far.values().map(Vec::len).sum::<usize>();
        self.room = LEAST_ROOM.max(2 * self.entries);
    }
}

/// No clock comes as far: it is 584 years after its beginning.
const NEVER: Moment = Moment::from_nanos(u64::MAX);

const LEAST_ROOM: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    const SLOT: Duration = Duration::from_millis(10);

    fn at(millis: u64) -> Moment {
        Moment::from_nanos(0) + Duration::from_millis(millis)
    }

    fn taken(timetable: &mut Timetable, horizon: Moment) -> Vec<usize> {
        let mut taken = timetable.take(horizon);
        taken.sort_unstable();
        taken
    }

    #[test]
    fn what_is_due_is_taken_and_nothing_that_is_later() {
        let mut timetable = Timetable::new(SLOT);
        for (place, moment) in [(0, 25), (1, 7), (2, 1000), (3, 3), (4, 26)] {
            timetable.set(place, at(moment));
        }

        assert_eq!(timetable.first(), Some(at(3)));
        assert_eq!(taken(&mut timetable, at(25)), [0, 1, 3]);
        assert_eq!(timetable.first(), Some(at(26)));
        // In a slot that is open already, and in one before.
        timetable.set(5, at(24));
        timetable.set(6, at(2));
        assert_eq!(taken(&mut timetable, at(1000)), [2, 4, 5, 6]);
        assert_eq!(timetable.first(), None);
    }

    #[test]
    fn a_place_has_the_moment_that_it_was_given_last() {
        let mut timetable = Timetable::new(SLOT);
        for (first, last) in [(5, 500), (500, 5), (5, 6), (500, 501)] {
            timetable.set(0, at(first));
            timetable.set(0, at(last));

            assert_eq!(timetable.first(), Some(at(last)));
            assert_eq!(taken(&mut timetable, at(1000)), [0]);
        }
    }

    #[test]
    fn what_comes_back_to_a_moment_is_taken_once() {
        let mut timetable = Timetable::new(SLOT);
        for moment in [5, 500, 5, 5] {
            timetable.set(0, at(moment));
        }

        assert_eq!(taken(&mut timetable, at(1000)), [0]);
    }

    #[test]
    fn what_is_cleared_is_not_taken() {
        let mut timetable = Timetable::new(SLOT);
        timetable.set(0, at(5));
        timetable.set(1, at(500));
        timetable.clear(0);
        timetable.clear(1);
        timetable.clear(7);

        assert_eq!(timetable.first(), None);
    }

    #[test]
    fn what_comes_and_goes_leaves_nothing_behind() {
        let mut timetable = Timetable::new(SLOT);
        let (last, ten) = (1_000_000, LEAST_ROOM * 10);
        for round in 0..last {
            timetable.set(round % 10, at(60_000 + u64::try_from(round).unwrap()));
            assert!(timetable.entries <= LEAST_ROOM, "after {round} rounds");
        }

        assert_eq!(taken(&mut timetable, at(u64::MAX)).len(), 10);
        assert!(timetable.near.capacity() < ten && timetable.far.is_empty());
    }
}
