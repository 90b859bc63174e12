//! Backoff for shards that have a row but do not exist in the stream. Meanwhile, their leases are free, so
//! that the sync can remove their rows.

use std::collections::BTreeMap;
use std::time::Duration;

use lease_core::{LeaseKey, Lessee};
use tokio::time::Instant;

use crate::log_throttle::{LogLevel, LogThrottle};

#[derive(Debug, Default)]
pub(crate) struct MissingShardBackoff {
    shards: BTreeMap<LeaseKey, MissingShard>,
}

#[derive(Debug)]
struct MissingShard {
    times: u32,
    throttle: LogThrottle,
    until: Instant,
}

impl MissingShardBackoff {
    /// `length` returns the delay after a number of attempts.
    pub(crate) fn is_missing(
        &mut self,
        key: LeaseKey,
        now: Instant,
        length: impl FnOnce(u32) -> Duration,
    ) -> LogLevel {
        let new = || MissingShard { times: 0, throttle: LogThrottle::default(), until: now };
        let shard = self.shards.entry(key).or_insert_with(new);
        shard.times = shard.times.saturating_add(1);
        shard.until = now + length(shard.times);
        shard.throttle.once_more()
    }

    pub(crate) fn is_delayed(&self, key: &LeaseKey, now: Instant) -> bool {
        self.shards.get(key).is_some_and(|shard| now < shard.until)
    }

    /// Forgets shards without a row, and unreadable shards.
    pub(crate) fn keep(&mut self, held: &BTreeMap<LeaseKey, Option<Lessee>>) {
        self.shards.retain(|key, _| held.contains_key(key));
    }
}
