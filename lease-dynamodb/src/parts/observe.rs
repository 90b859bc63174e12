//! What was seen of each key, and since when: a lease that stays as it is has no holder left.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lease_core::Moment;

/// A sight, and how long it has lasted.
#[derive(Debug, Clone)]
#[expect(clippy::exhaustive_structs, reason = "for the tables of this repository")]
pub struct Watched<S> {
    /// What changes with every grant, heartbeat and release.
    pub sight: S,
    /// How long it must last before the lease may be taken, where the item tells.
    pub ttl: Option<Duration>,
    /// The receipt of the answer that first showed it. Its writer counts from before it wrote,
    /// which was earlier still.
    pub since: Moment,
    /// The receipt of the last answer that showed it.
    pub last: Moment,
}

/// The sights of many keys, kept across attempts.
///
/// Bounded: of too many, those that were seen longest ago are forgotten. Their contenders wait
/// longer, nobody is harmed.
#[derive(Debug)]
pub struct Observations<S> {
    most: usize,
    seen: Mutex<HashMap<String, Watched<S>>>,
}

impl<S: Clone + PartialEq> Observations<S> {
    /// Of `most` keys: at least one.
    pub fn new(most: usize) -> Self {
        Self { most, seen: Mutex::new(HashMap::new()) }
    }

    /// What was seen of `key` last.
    pub fn recall(&self, key: &str) -> Option<Watched<S>> {
        self.seen().get(key).cloned()
    }

    /// Remembers what an answer showed, that was received `now`; says since when it is so.
    pub fn see(&self, key: &str, sight: S, ttl: Option<Duration>, now: Moment) -> Moment {
        let mut seen = self.seen();
        if let Some(known) = seen.get_mut(key)
            && known.sight == sight
        {
            known.last = known.last.max(now);
            return known.since;
        }
        if seen.len() >= self.most && !seen.contains_key(key) {
            forget_half(&mut seen);
        }
        seen.insert(key.to_owned(), Watched { sight, ttl, since: now, last: now });
        now
    }

    /// Forgets `key`, of which there is nothing to wait for.
    pub fn forget(&self, key: &str) {
        self.seen().remove(key);
    }

    fn seen(&self) -> MutexGuard<'_, HashMap<String, Watched<S>>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Half at a time, so that a full map costs little per key.
fn forget_half<S>(seen: &mut HashMap<String, Watched<S>>) {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::from_nanos(0) + Duration::from_secs(seconds)
    }

    const TTL: Option<Duration> = Some(Duration::from_secs(10));

    #[test]
    fn a_sight_counts_from_its_first_receipt_until_it_changes() {
        let observations = Observations::new(10);

        assert_eq!(observations.see("job", 1, TTL, at(1)), at(1));
        assert_eq!(observations.see("job", 1, TTL, at(5)), at(1));
        assert_eq!(observations.see("job", 2, TTL, at(6)), at(6));
        assert_eq!(observations.see("job", 1, TTL, at(7)), at(7));
    }

    #[test]
    fn too_many_keys_are_forgotten_from_the_oldest() {
        let observations = Observations::new(100);
        for second in 0..1000 {
            observations.see(&format!("job {second}"), 1, TTL, at(second));
            assert!(observations.seen().len() <= 100);
        }

        assert!(observations.recall("job 999").is_some());
        assert!(observations.recall("job 1").is_none());
    }

    #[test]
    fn many_keys_seen_at_one_moment_stay_bounded_too() {
        let observations = Observations::new(100);
        for number in 0..1000 {
            observations.see(&format!("job {number}"), 1, TTL, at(1));
            assert!(observations.seen().len() <= 100);
        }
    }
}
