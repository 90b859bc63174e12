//! Reads and lists through another handle.

use std::collections::BTreeMap;

use futures_util::StreamExt;
use lease_core::{LeaseKey, Value};

use crate::conformance::Fixture;
use crate::conformance::case::{Case, name, record};
use crate::register::{Register, Versioned};

/// As soon as a write is answered, a read through another handle returns it.
pub async fn read_is_not_older_than_finished_write<F: Fixture>(case: Case<F>) {
    let key = name("register/key");
    let mut version = None;
    for _ in 0..50 {
        let written = record();
        // Fills a cache of the second handle, if it has one.
        drop(case.read_by_other(&key).await);
        version = Some(case.write(&key, version.as_ref(), &written).await);

        let found = case.read_by_other(&key).await.map(|found| found.record);

        assert_eq!(
            found,
            Some(written),
            "a read should not be older than a write that was answered before: the register \
             should read from the service's leader, or with its strongest consistency"
        );
    }
}

/// As soon as a write is answered, a list through another handle has it.
pub async fn list_is_not_older_than_finished_write<F: Fixture>(case: Case<F>) {
    let key = name("register/key");
    let mut version = None;
    for _ in 0..10 {
        let written = record();
        version = Some(case.write(&key, version.as_ref(), &written).await);

        let listed = case.listed("register/").await;

        let found = listed.into_iter().map(|(key, found)| (key, found.record, Some(found.version)));
        assert_eq!(
            found.collect::<Vec<_>>(),
            [(key.clone(), written, version.clone())],
            "a list should have each record as the last answered write has left it"
        );
    }
}

/// A list has every key of its prefix, over all pages, and no other key.
pub async fn list_has_every_key_of_its_prefix<F: Fixture>(case: Case<F>) {
    let mut expected = BTreeMap::new();
    for number in 0..130 {
        let key = name(&format!("list/a/{number:03}"));
        let mut record = record();
        record.attributes.insert("note".to_owned(), Value::from("x".repeat(10_000)));
        let version = case.write(&key, None, &record).await;
        expected.insert(key, Versioned { record, version });
    }
    for other in ["list/b", "list/A/1", "list/aa", "lis"] {
        case.create(&name(other)).await;
    }

    let listed = case.listed("list/a/").await;

    assert_eq!(listed.len(), expected.len(), "a list should have each key of its prefix once");
    let listed: BTreeMap<_, _> = listed.into_iter().collect();
    assert!(listed == expected, "a list should have each record and its version");
    assert_eq!(case.listed("").await.len(), 134, "the empty prefix should list every key");
}

#[expect(clippy::expect_used, reason = "a panic reports a broken promise")]
impl<F: Fixture> Case<F> {
    /// Lists through the second handle.
    pub(crate) async fn listed(&self, prefix: &str) -> Vec<(LeaseKey, Versioned)> {
        let listed: Vec<_> = self.other.list(prefix).collect().await;
        let listed = listed.into_iter().collect::<Result<Vec<_>, _>>();
        listed.expect("the register should list its keys")
    }
}
