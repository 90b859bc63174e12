//! Counts in how many exports each event has failed although the sink took others.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::buffer::Position;

/// The failures of events that are pending, as far as this process has seen them.
///
/// They are in memory alone: a restart begins to count again, and keeps the event pending for longer.
#[derive(Debug, Default)]
pub(crate) struct Failures(Mutex<BTreeMap<Position, u32>>);

impl Failures {
    /// Counts one more export in which the sink did not take `failed`, and took others.
    pub(crate) fn count(&self, failed: &[Position]) {
        let mut counts = self.counts();
        for position in failed {
            // Beyond the bound only known ones are counted: the others are counted once those are gone.
            if counts.len() < MOST_COUNTED || counts.contains_key(position) {
                let count = counts.entry(*position).or_default();
                *count = count.saturating_add(1);
            }
        }
    }

    /// In how many exports the event at `position` has failed.
    pub(crate) fn of(&self, position: Position) -> u32 {
        self.counts().get(&position).copied().unwrap_or(0)
    }

    /// Forgets events before `oldest`, the first that is pending: another process has sent them.
    pub(crate) fn forget_before(&self, oldest: Position) {
        let mut counts = self.counts();
        *counts = counts.split_off(&oldest);
    }

    /// Forgets events that are not pending any more.
    pub(crate) fn forget(&self, positions: &[Position]) {
        let mut counts = self.counts();
        for position in positions {
            counts.remove(position);
        }
    }

    fn counts(&self) -> MutexGuard<'_, BTreeMap<Position, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Some megabytes.
pub(crate) const MOST_COUNTED: usize = 100_000;
