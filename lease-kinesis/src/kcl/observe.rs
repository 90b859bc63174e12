//! What was seen of each row, and since when: KCL writes no time, so a lease that stays as it is has
//! nobody behind it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lease_core::{FencingToken, Lessee, Moment};

/// What changes with every sign of life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sight {
    pub(super) owner: Option<Lessee>,
    pub(super) life: Life,
}

/// What its owner moves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Life {
    /// A worker of KCL moves the counter, by renewals and by checkpoints.
    OfKcl { counter: u64 },
    /// A grant of ours goes by its heartbeats alone: an update is no sign of life.
    OfGrant { nonce: String, token: FencingToken, beat: u64, reserved: bool },
}

/// A sight, and since when it has lasted.
#[derive(Debug, Clone)]
pub(super) struct Watched {
    pub(super) sight: Sight,
    /// How long it must last before nobody is behind it.
    pub(super) ttl: Duration,
    /// The receipt of the answer that first showed it. Its writer counts from before it wrote,
    /// which was earlier still.
    pub(super) since: Moment,
    last: Moment,
}

/// The sights of many rows, kept across attempts.
///
/// Bounded: of too many, those that were seen longest ago are forgotten. Their contenders wait
/// longer, nobody is harmed.
#[derive(Debug, Default)]
pub(super) struct Observations {
    seen: Mutex<HashMap<String, Watched>>,
}

impl Observations {
    /// Remembers what an answer showed, that was received `now`; says since when it is so.
    pub(super) fn see(&self, key: &str, sight: Sight, ttl: Duration, now: Moment) -> Moment {
        let mut seen = self.seen();
        if let Some(known) = seen.get_mut(key)
            && known.sight == sight
        {
            known.last = known.last.max(now);
            return known.since;
        }
        if seen.len() >= MOST && !seen.contains_key(key) {
            forget_half(&mut seen);
        }
        seen.insert(key.to_owned(), Watched { sight, ttl, since: now, last: now });
        now
    }

    pub(super) fn recall(&self, key: &str) -> Option<Watched> {
        self.seen().get(key).cloned()
    }

    pub(super) fn forget(&self, key: &str) {
        self.seen().remove(key);
    }

    fn seen(&self) -> MutexGuard<'_, HashMap<String, Watched>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Half at a time, so that a full map costs little per row.
fn forget_half(seen: &mut HashMap<String, Watched>) {
    let mut ages: Vec<Moment> = seen.values().map(|seen| seen.last).collect();
    let middle = ages.len() / 2;
    let (_, &mut median, _) = ages.select_nth_unstable(middle);
    let mut left = middle;
    seen.retain(|_, seen| {
        let stays = seen.last >= median && left > 0;
        left -= usize::from(stays);
        stays
    });
}

/// About twice the shards that a stream may have by default.
const MOST: usize = 20_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn sight(counter: u64) -> Sight {
        Sight { owner: Some("host-1".parse().unwrap()), life: Life::OfKcl { counter } }
    }

    fn at(seconds: u64) -> Moment {
        Moment::from_nanos(0) + Duration::from_secs(seconds)
    }

    const TTL: Duration = Duration::from_secs(10);

    #[test]
    fn a_sight_counts_from_its_first_receipt_until_it_changes() {
        let observations = Observations::default();

        assert_eq!(observations.see("shard", sight(1), TTL, at(1)), at(1));
        assert_eq!(observations.see("shard", sight(1), TTL, at(5)), at(1));
        assert_eq!(observations.see("shard", sight(2), TTL, at(6)), at(6));
        assert_eq!(observations.see("shard", sight(1), TTL, at(7)), at(7));
    }

    #[test]
    fn too_many_rows_are_forgotten_from_the_oldest() {
        let observations = Observations::default();
        let most = u64::try_from(MOST).unwrap();
        for second in 0..=most {
            observations.see(&format!("shard {second}"), sight(1), TTL, at(second));
        }

        assert!(observations.seen().len() <= MOST);
        assert!(observations.recall(&format!("shard {most}")).is_some());
        assert!(observations.recall("shard 0").is_none());
    }
}
