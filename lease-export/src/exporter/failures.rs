//! Counts the exports in which an event failed although the sink took other events.

use std::collections::BTreeMap;

use parking_lot::{Mutex, MutexGuard};

use crate::buffer::Position;

/// The failures of pending events, counted by this process.
///
/// After a restart, the counts start at 0, so an event may stay pending for longer.
#[derive(Debug, Default)]
pub(crate) struct Failures(Mutex<BTreeMap<Position, u32>>);

impl Failures {
    /// Counts one export that sent other events, but not the events at `failed`.
    pub(crate) fn count(&self, failed: &[Position]) {
        let mut counts = self.counts();
        for position in failed {
            // If the map is full, only events in the map are counted.
            if counts.len() < MOST_COUNTED || counts.contains_key(position) {
                let count = counts.entry(*position).or_default();
                *count = count.saturating_add(1);
            }
        }
    }

    pub(crate) fn of(&self, position: Position) -> u32 {
        self.counts().get(&position).copied().unwrap_or(0)
    }

    /// Another process has sent the events before `oldest`, the first pending event.
    pub(crate) fn forget_before(&self, oldest: Position) {
        let mut counts = self.counts();
        *counts = counts.split_off(&oldest);
    }

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

/// Bounds the memory of the map to a few megabytes.
pub(crate) const MOST_COUNTED: usize = 100_000;
