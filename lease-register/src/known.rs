//! The last known value of each key, so that a heartbeat is one request.

use std::collections::HashMap;
use std::fmt;

use lease_core::LeaseKey;
use parking_lot::Mutex;

/// The last value that this process has read or written, for each key. Another process may have replaced it: a
/// write on its version then conflicts.
///
/// A [`RegisterStore`](crate::RegisterStore) remembers records by itself. A register needs this only if a write needs
/// more of the last value than its version.
pub struct Known<T> {
    capacity: usize,
    by_key: Mutex<HashMap<LeaseKey, T>>,
}

impl<T> Known<T> {
    /// Knows no value yet, and up to `capacity` values later. If there are more, forgets any of them.
    pub fn new(capacity: usize) -> Self {
        Self { capacity, by_key: Mutex::default() }
    }

    /// Removes the value, and returns it. A request takes it before it writes: if the outcome stays unknown, the next
    /// request reads.
    pub fn take(&self, key: &LeaseKey) -> Option<T> {
        self.by_key.lock().remove(key)
    }

    /// Remembers a value that was read or written.
    pub fn keep(&self, key: &LeaseKey, value: T) {
        let mut by_key = self.by_key.lock();
        if by_key.len() >= self.capacity && !by_key.contains_key(key) {
            // Any key: if leases send heartbeats in turn, the oldest value is the one that is needed next.
            let evicted = by_key.keys().next().cloned();
            if let Some(evicted) = evicted {
                by_key.remove(&evicted);
            }
        }
        by_key.insert(key.clone(), value);
    }
}

impl<T: Clone> Known<T> {
    pub(crate) fn get(&self, key: &LeaseKey) -> Option<T> {
        self.by_key.lock().get(key).cloned()
    }
}

impl<T> fmt::Debug for Known<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Known").field("capacity", &self.capacity).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_of_known_values_is_bounded() {
        let known = Known::new(10);

        for number in 0..100_u64 {
            let key = LeaseKey::new(format!("job {number}")).unwrap();
            known.keep(&key, number);
            assert!(known.by_key.lock().len() <= 10);
            assert_eq!(known.get(&key), Some(number));
        }
    }
}
