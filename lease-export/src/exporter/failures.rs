//! Counts the exports in which an event failed although the sink took other events.

use std::collections::BTreeMap;

use parking_lot::{Mutex, MutexGuard};

use crate::buffer::Position;

/// The failures of pending events, as this process has seen them.
///
/// The counts are only in memory. After a restart, they start at 0, so an event may stay pending for
/// longer.
#[derive(Debug, Default)]
pub(crate) struct Failures(Mutex<BTreeMap<Position, u32>>);

impl Failures {
    /// Counts one more export in which the sink took other events, but not the events at `failed`.
    pub(crate) fn count(&self, failed: &[Position]) {
        let mut counts = self.counts();
        for position in failed {
            // If the map is full, only the failures of events in the map are counted.
            if counts.len() < MOST_COUNTED || counts.contains_key(position) {
                let count = counts.entry(*position).or_default();
                *count = count.saturating_add(1);
            }
        }
    }

    /// The number of exports in which the event at `position` failed.
    pub(crate) fn of(&self, position: Position) -> u32 {
        self.counts().get(&position).copied().unwrap_or(0)
    }

    /// Forgets events before `oldest`, the first pending event: another process has sent them.
    pub(crate) fn forget_before(&self, oldest: Position) {
        let mut counts = self.counts();
        *counts = counts.split_off(&oldest);
    }

    /// Forgets events that are no longer pending.
    pub(crate) fn forget(&self, positions: &[Position]) {
        let mut counts = self.counts();
        for position in positions {
            counts.remove(position);
        }
    }

    fn counts(&self) -> MutexGuard<'_, BTreeMap<Position, u32>> {
        self.0.lock()
    }
}

/// Bounds the memory of this map to a few megabytes.
pub(crate) const MOST_COUNTED: usize = 100_000;
