//! What was seen of each key, and since when: a lease that stays as it is has no holder left.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lease_core::{Beat, FencingToken, LeaseKey, Lessee, Moment};

/// What changes with every grant, heartbeat and release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sight {
    pub(crate) lessee: Option<Lessee>,
    pub(crate) token: Option<FencingToken>,
    pub(crate) beat: Option<Beat>,
}

/// A sight, and how long it has lasted.
#[derive(Debug, Clone)]
pub(crate) struct Watched {
    pub(crate) sight: Sight,
    /// How long it must last before the lease may be taken, where the item tells.
    pub(crate) ttl: Option<Duration>,
    /// The receipt of the answer that first showed it. Its writer counts from before it wrote,
    /// which was earlier still.
    pub(crate) since: Moment,
}

/// The sights of many keys, kept across attempts.
///
/// Bounded: of too many, those that were seen longest ago are forgotten. Their contenders wait
/// longer, nobody is harmed.
#[derive(Debug)]
pub(crate) struct Observations {
    most: usize,
    seen: Mutex<HashMap<LeaseKey, Seen>>,
}

#[derive(Debug)]
struct Seen {
    watched: Watched,
    last: Moment,
}

impl Observations {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, seen: Mutex::new(HashMap::new()) }
    }

    pub(crate) fn recall(&self, key: &LeaseKey) -> Option<Watched> {
        self.seen().get(key).map(|seen| seen.watched.clone())
    }

    /// Remembers what an answer showed, that was received `now`; says since when it is so.
    pub(crate) fn see(
        &self,
        key: &LeaseKey,
        sight: Sight,
        ttl: Option<Duration>,
        now: Moment,
    ) -> Moment {
        let mut seen = self.seen();
        if let Some(known) = seen.get_mut(key)
            && known.watched.sight == sight
        {
            known.last = known.last.max(now);
            return known.watched.since;
        }
        if seen.len() >= self.most && !seen.contains_key(key) {
            forget_half(&mut seen);
        }
        let watched = Watched { sight, ttl, since: now };
        seen.insert(key.clone(), Seen { watched, last: now });
        now
    }

    pub(crate) fn forget(&self, key: &LeaseKey) {
        self.seen().remove(key);
    }

    fn seen(&self) -> MutexGuard<'_, HashMap<LeaseKey, Seen>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Half at a time, so that a full map costs little per key.
fn forget_half(seen: &mut HashMap<LeaseKey, Seen>) {
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

    fn sight(beat: u64) -> Sight {
        Sight {
            lessee: Some("a".parse().unwrap()),
            token: Some(FencingToken::new(7).unwrap()),
            beat: Some(Beat::new(beat)),
        }
    }

    fn at(seconds: u64) -> Moment {
        Moment::from_nanos(0) + Duration::from_secs(seconds)
    }

    const TTL: Option<Duration> = Some(Duration::from_secs(10));

    #[test]
    fn a_sight_counts_from_its_first_receipt_until_it_changes() {
        let observations = Observations::new(10);
        let key = "job".parse().unwrap();

        assert_eq!(observations.see(&key, sight(1), TTL, at(1)), at(1));
        assert_eq!(observations.see(&key, sight(1), TTL, at(5)), at(1));
        assert_eq!(observations.see(&key, sight(2), TTL, at(6)), at(6));
        assert_eq!(observations.see(&key, sight(1), TTL, at(7)), at(7));
    }

    #[test]
    fn too_many_keys_are_forgotten_from_the_oldest() {
        let observations = Observations::new(100);
        for second in 0..1000 {
            let key = format!("job {second}").parse().unwrap();
            observations.see(&key, sight(1), TTL, at(second));
            assert!(observations.seen().len() <= 100);
        }

        assert!(observations.recall(&"job 999".parse().unwrap()).is_some());
        assert!(observations.recall(&"job 1".parse().unwrap()).is_none());
    }

    #[test]
    fn many_keys_seen_at_one_moment_stay_bounded_too() {
        let observations = Observations::new(100);
        for number in 0..1000 {
            let key = format!("job {number}").parse().unwrap();
            observations.see(&key, sight(1), TTL, at(1));
            assert!(observations.seen().len() <= 100);
        }
    }
}
