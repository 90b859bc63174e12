//! The last known object of each key, whose labels and counters the next write keeps.

use std::collections::HashMap;

use lease_core::LeaseKey;
use lease_register::Version;
use parking_lot::Mutex;

use crate::object::Object;

/// The last object that was read or written, for each key. Without it, a replacement needs a read.
#[derive(Debug, Default)]
pub(crate) struct Known {
    by_key: Mutex<HashMap<LeaseKey, (Version, Object)>>,
}

impl Known {
    /// Removes the object of `key`, and returns it if it has this version.
    pub(crate) fn take(&self, key: &LeaseKey, version: &Version) -> Option<Object> {
        let (found, object) = self.by_key.lock().remove(key)?;
        (found == *version).then_some(object)
    }

    pub(crate) fn keep(&self, key: &LeaseKey, version: Version, object: Object) {
        let mut by_key = self.by_key.lock();
        if by_key.len() >= CAPACITY && !by_key.contains_key(key) {
            let evicted = by_key.keys().next().cloned();
            if let Some(evicted) = evicted {
                by_key.remove(&evicted);
            }
        }
        by_key.insert(key.clone(), (version, object));
    }
}

/// As many keys as `RegisterStore` remembers by default.
const CAPACITY: usize = 10_000;
