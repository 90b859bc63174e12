//! The last known record of each key, so that a heartbeat is one request.

use std::collections::HashMap;

use lease_core::LeaseKey;
use parking_lot::Mutex;

use crate::register::Versioned;

/// The last record that this store has read or written, for each key. Another process may have replaced it: a
/// write on its version then conflicts.
#[derive(Debug)]
pub(crate) struct Known {
    capacity: usize,
    by_key: Mutex<HashMap<LeaseKey, Versioned>>,
}

impl Known {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { capacity, by_key: Mutex::default() }
    }

    pub(crate) fn get(&self, key: &LeaseKey) -> Option<Versioned> {
        self.by_key.lock().get(key).cloned()
    }

    /// Removes the record. A request takes it before it writes: if the outcome stays unknown, the next request reads.
    pub(crate) fn take(&self, key: &LeaseKey) -> Option<Versioned> {
        self.by_key.lock().remove(key)
    }

    pub(crate) fn keep(&self, key: &LeaseKey, versioned: Versioned) {
        let mut by_key = self.by_key.lock();
        if by_key.len() >= self.capacity && !by_key.contains_key(key) {
            // Any key: if leases send heartbeats in turn, the oldest record is the one that is needed next.
            let evicted = by_key.keys().next().cloned();
            if let Some(evicted) = evicted {
                by_key.remove(&evicted);
            }
        }
        by_key.insert(key.clone(), versioned);
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::record::Record;

    #[test]
    fn number_of_known_records_is_bounded() {
        let known = Known::new(10);

        for number in 0..100_u64 {
            let record = Record::blank(Uuid::nil());
            let key = LeaseKey::new(format!("job {number}")).unwrap();
            known.keep(&key, Versioned { record, version: number.into() });
            assert!(known.by_key.lock().len() <= 10);
            assert!(known.get(&key).is_some());
        }
    }
}
