//! The conformance kit passes on a slow store: it checks promises, not speed.

use std::panic::{AssertUnwindSafe, catch_unwind};

use async_trait::async_trait;
use lease_core::conformance::{Faulty, Fixture, Reopened, lock_promises, table_promises};
use lease_memory::MemoryStore;

/// Ten requests in a row take longer than a ttl.
struct Slow;

impl Slow {
    fn behind_a_network(&self, store: MemoryStore) -> Faulty<MemoryStore> {
        Faulty::new(store).with_latency(self.ttl() / 9)
    }
}

#[async_trait]
impl Fixture for Slow {
    type Store = Faulty<MemoryStore>;

    async fn store(&self) -> Faulty<MemoryStore> {
        self.behind_a_network(MemoryStore::new())
    }

    async fn another(&self, store: &Faulty<MemoryStore>) -> Faulty<MemoryStore> {
        store.clone()
    }

    async fn reopen(&self, store: Faulty<MemoryStore>) -> Reopened<Faulty<MemoryStore>> {
        Reopened::Intact(store)
    }

    fn time_may_be_paused(&self) -> bool {
        true
    }
}

#[test]
fn slow_store_keeps_every_promise() {
    let promises = lock_promises::<Slow>().into_iter().chain(table_promises());

    let broken: Vec<_> = promises
        .filter(|promise| catch_unwind(AssertUnwindSafe(|| (promise.check)(Slow))).is_err())
        .map(|promise| promise.name)
        .collect();

    assert!(broken.is_empty(), "{broken:#?}");
}
