//! The memory store keeps every promise of both traits.

use async_trait::async_trait;
use lease_core::conformance::Fixture;
use lease_memory::MemoryStore;

struct Memory;

#[async_trait]
impl Fixture for Memory {
    type Store = MemoryStore;

    async fn store(&self) -> MemoryStore {
        MemoryStore::counting_from_one()
    }

    fn time_may_be_paused(&self) -> bool {
        true
    }
}

lease_core::conformance!(Memory);
lease_core::table_conformance!(Memory);
