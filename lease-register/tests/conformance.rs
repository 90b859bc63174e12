//! The store on a register keeps every promise of both traits.

use async_trait::async_trait;
use lease_core::conformance::{Fixture, Reopened, lock_promises, table_promises};
use lease_register::RegisterStore;
use lease_register::conformance::MemoryRegister;
use lease_test_servers::promises::broken_of_these;

/// Each promise has its own register.
struct OnRegister(MemoryRegister, Paused);

/// Whether time may be paused. If not, some promises also race two requests on two threads.
#[derive(PartialEq)]
enum Paused {
    Yes,
    No,
}

#[async_trait]
impl Fixture for OnRegister {
    type Store = RegisterStore<MemoryRegister>;

    async fn store(&self) -> Self::Store {
        RegisterStore::new(self.0.clone())
    }

    async fn another(&self, _store: &Self::Store) -> Self::Store {
        self.store().await
    }

    async fn reopen(&self, store: Self::Store) -> Reopened<Self::Store> {
        drop(store);
        Reopened::Intact(self.store().await)
    }

    fn time_may_be_paused(&self) -> bool {
        self.1 == Paused::Yes
    }
}

mod opaque {
    use super::*;

    lease_core::conformance!(OnRegister(MemoryRegister::opaque(), Paused::Yes));
    lease_core::table_conformance!(OnRegister(MemoryRegister::opaque(), Paused::Yes));
}

mod growing {
    use super::*;

    lease_core::conformance!(OnRegister(MemoryRegister::growing(), Paused::Yes));
    lease_core::table_conformance!(OnRegister(MemoryRegister::growing(), Paused::Yes));
}

mod opaque_with_dates {
    use super::*;

    lease_core::conformance!(OnRegister(MemoryRegister::opaque().with_dates(), Paused::Yes));
    lease_core::table_conformance!(OnRegister(MemoryRegister::opaque().with_dates(), Paused::Yes));
}

#[test]
fn promises_hold_on_several_threads() {
    let both = lock_promises::<OnRegister>().into_iter().chain(table_promises());
    let names: Vec<_> = both.map(|promise| promise.name).collect();
    let of_handles = names.into_iter().filter(|name| name.contains("through_two_handles"));

    let broken = broken_of_these(&of_handles.collect::<Vec<_>>(), || {
        OnRegister(MemoryRegister::growing(), Paused::No)
    });

    assert!(broken.is_empty(), "{broken:?}");
}
