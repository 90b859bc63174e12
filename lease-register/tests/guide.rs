//! The example of the guide *Write a store in a hundred lines* keeps every promise, and is in the guide as it is here.

use std::path::Path;

use async_trait::async_trait;
use lease_core::LeaseKey;
use lease_core::conformance::{Fixture, Reopened};
use lease_register::RegisterStore;
use lease_register::conformance as registers;

use crate::example::KeyValueRegister;

#[expect(dead_code, reason = "its `main` runs as an example")]
#[path = "../examples/key_value.rs"]
mod example;

/// Each promise has its own service.
struct Fresh(KeyValueRegister);

fn fresh() -> Fresh {
    Fresh(KeyValueRegister::default())
}

#[async_trait]
impl registers::Fixture for Fresh {
    type Register = KeyValueRegister;

    async fn register(&self) -> KeyValueRegister {
        self.0.clone()
    }

    async fn another(&self, register: &KeyValueRegister) -> KeyValueRegister {
        register.clone()
    }

    async fn delete(&self, register: &KeyValueRegister, key: &LeaseKey) -> bool {
        register.delete(key);
        true
    }

    fn time_may_be_paused(&self) -> bool {
        true
    }
}

#[async_trait]
impl Fixture for Fresh {
    type Store = RegisterStore<KeyValueRegister>;

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
        true
    }
}

lease_register::register_conformance!(fresh());
lease_core::conformance!(fresh());
lease_core::table_conformance!(fresh());

#[test]
fn guide_has_the_example_as_it_is_tested() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let guide = std::fs::read_to_string(folder.join("../docs/guides/write-a-store.md")).unwrap();
    let example = include_str!("../examples/key_value.rs");
    let (register, _service) = example.split_once("\n/// A stand-in for the client").unwrap();
    let (_title, register) = register.split_once("\n\n").unwrap();

    assert!(guide.contains(register.trim()), "copy examples/key_value.rs into the guide");
    assert!(register.trim().lines().count() <= 100, "the guide promises a hundred lines");
}
