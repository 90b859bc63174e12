//! The keys for which waiters of a locker had to wait recently.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Moment;
use crate::key::LeaseKey;

/// The next waiter for such a key joins the store's queue, or registers a watch, before its first attempt.
#[derive(Debug, Default)]
pub(crate) struct ContendedKeys {
    keys: Mutex<Keys>,
}

#[derive(Debug, Default)]
struct Keys {
    until: HashMap<LeaseKey, Moment>,
    purge_at: usize,
}

impl ContendedKeys {
    pub(crate) fn contains(&self, key: &LeaseKey, now: Moment) -> bool {
        self.keys.lock().until.get(key).is_some_and(|until| *until > now)
    }

    pub(crate) fn note(&self, key: &LeaseKey, now: Moment, length: Duration) {
        let mut keys = self.keys.lock();
        if keys.until.len() >= keys.purge_at {
            keys.until.retain(|_, until| *until > now);
            keys.purge_at = (keys.until.len() * 2).max(MIN_PURGE_AT);
        }
        keys.until.insert(key.clone(), now + length);
    }

    pub(crate) fn remove(&self, key: &LeaseKey) {
        self.keys.lock().until.remove(key);
    }
}

const MIN_PURGE_AT: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outdated_keys_are_removed() {
        let contended = ContendedKeys::default();
        let start = Moment::from_nanos(0);
        let key = |number: usize| LeaseKey::new(format!("job-{number}")).unwrap();

        for number in 0..1_000 {
            let now = start + Duration::from_secs(10 * number as u64);
            contended.note(&key(number), now, Duration::from_secs(30));
            assert!(contended.contains(&key(number), now));
        }

        assert!(contended.keys.lock().until.len() <= MIN_PURGE_AT);
        assert!(!contended.contains(&key(0), start + Duration::from_secs(60)));
    }
}
