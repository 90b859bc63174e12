//! Shards that the stream did not have when they were to be read: left alone for a while, by the
//! worker that found out. Their leases are free meanwhile, for whoever is to remove their rows.

use std::collections::BTreeMap;
use std::time::Duration;

use lease_core::{LeaseKey, Lessee};
use tokio::time::Instant;

use crate::repeats::{Repeats, Telling};

/// What is left alone, and until when.
#[derive(Debug, Default)]
pub(crate) struct Resting {
    rests: BTreeMap<LeaseKey, Rest>,
}

#[derive(Debug)]
struct Rest {
    /// How often it was gone.
    times: u32,
    told: Repeats,
    until: Instant,
}

impl Resting {
    /// `key` is gone once more: it rests for as long as `length` says of so many times. Says how that
    /// is told.
    pub(crate) fn is_gone(
        &mut self,
        key: LeaseKey,
        now: Instant,
        length: impl FnOnce(u32) -> Duration,
    ) -> Telling {
        let new = || Rest { times: 0, told: Repeats::default(), until: now };
        let rest = self.rests.entry(key).or_insert_with(new);
        rest.times = rest.times.saturating_add(1);
        rest.until = now + length(rest.times);
        rest.told.once_more()
    }

    pub(crate) fn rests(&self, key: &LeaseKey, now: Instant) -> bool {
        self.rests.get(key).is_some_and(|rest| now < rest.until)
    }

    /// Forgets what has no row any more.
    pub(crate) fn keep(&mut self, held: &BTreeMap<LeaseKey, Option<Lessee>>) {
        self.rests.retain(|key, _| held.contains_key(key));
    }
}
