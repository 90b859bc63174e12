//! The memory store keeps every promise of the store traits.

use std::thread::sleep;
use std::time::Duration;

use async_trait::async_trait;
use lease_core::conformance::{Fixture, Reopened};
use lease_memory::MemoryStore;

struct Memory;

#[async_trait]
impl Fixture for Memory {
    type Store = MemoryStore;

    async fn store(&self) -> MemoryStore {
        MemoryStore::new()
    }

    /// Two stores that are created separately share no leases.
    async fn another(&self, store: &MemoryStore) -> MemoryStore {
        store.clone()
    }

    async fn reopen(&self, store: MemoryStore) -> Reopened<MemoryStore> {
        drop(store);
        // A new store's first token is the current time. A restart of a process takes longer than
        // this sleep.
        sleep(Duration::from_millis(1));
        Reopened::Empty(MemoryStore::new())
    }

    fn time_may_be_paused(&self) -> bool {
        true
    }
}

lease_core::conformance!(Memory);
lease_core::table_conformance!(Memory);
