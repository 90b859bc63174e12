//! The keys for which several claims compete, as far as one client has seen.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lease_core::{LeaseKey, Moment};

/// Remembers the keys for which a claim was refused lately.
#[derive(Debug, Default)]
pub(crate) struct Contention {
    keys: Mutex<Keys>,
}

#[derive(Debug, Default)]
struct Keys {
    contended_until: HashMap<LeaseKey, Moment>,
    /// At this many entries, those that have ended are removed.
    purge_at: usize,
}

impl Contention {
    pub(crate) fn contains(&self, key: &LeaseKey, now: Moment) -> bool {
        self.keys().contended_until.get(key).is_some_and(|until| *until > now)
    }

    pub(crate) fn add(&self, key: &LeaseKey, until: Moment, now: Moment) {
        let mut keys = self.keys();
        if keys.contended_until.len() >= keys.purge_at {
            keys.contended_until.retain(|_, until| *until > now);
            keys.purge_at = (keys.contended_until.len() * 2).max(LEAST_TO_PURGE);
        }
        keys.contended_until.insert(key.clone(), until);
    }

    fn keys(&self) -> MutexGuard<'_, Keys> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const LEAST_TO_PURGE: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_contended_until_its_entry_ends() {
        let contention = Contention::default();
        let key: LeaseKey = "report".parse().unwrap();

        contention.add(&key, Moment::from_nanos(10), Moment::from_nanos(0));

        assert!(contention.contains(&key, Moment::from_nanos(9)));
        assert!(!contention.contains(&key, Moment::from_nanos(10)));
    }

    #[test]
    fn contention_removes_ended_entries() {
        let contention = Contention::default();
        for number in 0..1000_u64 {
            let key: LeaseKey = format!("job-{number}").parse().unwrap();
            contention.add(&key, Moment::from_nanos(number + 5), Moment::from_nanos(number));
        }
        assert!(contention.keys().contended_until.len() <= LEAST_TO_PURGE);
    }
}
