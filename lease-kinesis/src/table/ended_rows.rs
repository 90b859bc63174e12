//! The leases of ended shards, which a worker beside another library keeps until it removes the rows.
//!
//! Workers of the Kinesis Client Library take a row without an owner, also if its shard has ended. They then count
//! the row as a part of their load.

use std::collections::BTreeMap;
use std::sync::Arc;

use lease_core::{Lease, LeaseKey};
use parking_lot::Mutex;

#[derive(Debug, Default)]
pub(crate) struct EndedRows(Mutex<BTreeMap<LeaseKey, Arc<Lease>>>);

impl EndedRows {
    pub(crate) fn keep(&self, lease: Arc<Lease>) {
        self.0.lock().insert(lease.key().clone(), lease);
    }

    /// Returns the kept lease of the row, if it is still held and no other task uses it.
    pub(crate) fn take(&self, key: &LeaseKey) -> Option<Lease> {
        let lease = self.0.lock().remove(key)?;
        Arc::into_inner(lease).filter(Lease::is_held)
    }

    /// Forgets the leases that were lost: another worker has removed or taken their rows.
    pub(crate) fn has_any(&self) -> bool {
        let mut kept = self.0.lock();
        kept.retain(|_, lease| lease.is_held());
        !kept.is_empty()
    }

    pub(crate) fn release_all(&self) {
        drop(std::mem::take(&mut *self.0.lock()));
    }
}
