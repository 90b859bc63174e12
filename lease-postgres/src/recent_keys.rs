//! Remembers keys of recent requests, to choose the statement of the next request.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use lease_core::LeaseKey;

/// A small set of keys. It may forget a key or confuse two keys.
#[derive(Debug)]
pub(crate) struct RecentKeys {
    hasher: RandomState,
    /// The hash of a key, in the slot that the hash selects. Zero means no key.
    slots: [AtomicU64; SLOTS],
}

impl RecentKeys {
    pub(crate) fn new() -> Self {
        Self { hasher: RandomState::new(), slots: std::array::from_fn(|_| AtomicU64::new(0)) }
    }

    pub(crate) fn contains(&self, key: &LeaseKey) -> bool {
        let (hash, slot) = self.slot(key);
        // Other memory does not depend on the slot.
        slot.is_some_and(|slot| slot.load(Ordering::Relaxed) == hash)
    }

    pub(crate) fn insert(&self, key: &LeaseKey) {
        let (hash, slot) = self.slot(key);
        if let Some(slot) = slot {
            slot.store(hash, Ordering::Relaxed);
        }
    }

    pub(crate) fn remove(&self, key: &LeaseKey) {
        let (hash, slot) = self.slot(key);
        if let Some(slot) = slot {
            // If the slot has another key, that key stays.
            let _ = slot.compare_exchange(hash, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    fn slot(&self, key: &LeaseKey) -> (u64, Option<&AtomicU64>) {
        let hash = self.hasher.hash_one(key.as_str()).max(1);
        let [first, ..] = hash.to_le_bytes();
        (hash, self.slots.get(usize::from(first)))
    }
}

/// Two keys in one slot occasionally cost a statement.
const SLOTS: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removed_key_is_not_contained() {
        let keys = RecentKeys::new();
        let (one, other) = ("one".parse().unwrap(), "other".parse().unwrap());
        keys.insert(&one);
        assert!(keys.contains(&one));
        assert!(!keys.contains(&other));

        keys.remove(&other);
        assert!(keys.contains(&one));
        keys.remove(&one);

        assert!(!keys.contains(&one));
    }
}
