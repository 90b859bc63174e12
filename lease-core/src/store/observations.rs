//! Remembers the last observed state of each key, and how long it has been unchanged.
//!
//! A holder changes its record with every heartbeat. So a lease has expired if its record is unchanged
//! for the lease's ttl.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use crate::clock::Moment;

/// The observed state of one record.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Observation<S> {
    /// The part of the record that changes with every grant, heartbeat and release.
    pub state: S,
    /// How long the state must be unchanged before a contender may take the lease. `None` if the
    /// record does not have it.
    pub ttl: Option<Duration>,
    /// The time at which the first answer with this state arrived. The writer's deadline counts from an
    /// earlier time, before its write.
    pub since: Moment,
    /// The time at which the last answer with this state arrived.
    pub last: Moment,
}

/// Remembers the observed states of many keys across attempts.
///
/// The number of keys is bounded. A full map forgets the keys that were observed longest ago.
/// Then contenders for a forgotten key wait longer, but leases stay exclusive.
#[derive(Debug)]
pub struct Observations<S> {
    capacity: usize,
    by_key: Mutex<HashMap<String, Observation<S>>>,
}

impl<S: Clone + PartialEq> Observations<S> {
    /// Creates a map of at most `capacity` keys, or of one key if `capacity` is zero.
    pub fn new(capacity: usize) -> Self {
        Self { capacity, by_key: Mutex::new(HashMap::new()) }
    }

    /// Returns the last observation of `key`.
    pub fn get(&self, key: &str) -> Option<Observation<S>> {
        self.lock().get(key).cloned()
    }

    /// Records the state in an answer that arrived at `now`. Returns the time at which the first answer with
    /// this state arrived.
    pub fn observe(&self, key: &str, state: S, ttl: Option<Duration>, now: Moment) -> Moment {
        let mut by_key = self.lock();
        if let Some(known) = by_key.get_mut(key)
            && known.state == state
        {
            known.last = known.last.max(now);
            return known.since;
        }
        if by_key.len() >= self.capacity && !by_key.contains_key(key) {
            forget_older_half(&mut by_key);
        }
        by_key.insert(key.to_owned(), Observation { state, ttl, since: now, last: now });
        now
    }

    /// Forgets `key`.
    pub fn forget(&self, key: &str) {
        self.lock().remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Observation<S>>> {
        self.by_key.lock()
    }
}

/// Removes half of the keys at once, so that a full map costs little per insertion.
fn forget_older_half<S>(by_key: &mut HashMap<String, Observation<S>>) {
    let mut ages: Vec<Moment> = by_key.values().map(|observation| observation.last).collect();
    let middle = ages.len() / 2;
    let (_, &mut median, _) = ages.select_nth_unstable(middle);
    let mut left = middle;
    by_key.retain(|_, observation| {
        let stays = observation.last >= median && left > 0;
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
    fn observation_counts_from_first_receipt_until_change() {
        let observations = Observations::new(10);

        assert_eq!(observations.observe("job", 1, TTL, at(1)), at(1));
        assert_eq!(observations.observe("job", 1, TTL, at(5)), at(1));
        assert_eq!(observations.observe("job", 2, TTL, at(6)), at(6));
        assert_eq!(observations.observe("job", 1, TTL, at(7)), at(7));
    }

    #[test]
    fn full_map_forgets_oldest_keys() {
        let observations = Observations::new(100);
        for second in 0..1000 {
            observations.observe(&format!("job {second}"), 1, TTL, at(second));
            assert!(observations.lock().len() <= 100);
        }

        assert!(observations.get("job 999").is_some());
        assert!(observations.get("job 1").is_none());
    }

    #[test]
    fn full_map_is_bounded_if_all_keys_are_equally_old() {
        let observations = Observations::new(100);
        for number in 0..1000 {
            observations.observe(&format!("job {number}"), 1, TTL, at(1));
            assert!(observations.lock().len() <= 100);
        }
    }
}
