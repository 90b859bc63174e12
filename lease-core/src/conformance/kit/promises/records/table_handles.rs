//! Promises of a lease table for two handles on the same data.

use std::sync::Arc;

use crate::conformance::Fixture;
use crate::conformance::kit::case::{Case, name};
use crate::conformance::kit::race::at_once;
use crate::store::attributes::{Attributes, Change};
use crate::store::grant::Written;
use crate::store::lease_table::LeaseTable;

/// If two creations arrive at once through two handles, exactly one of them creates the record.
pub async fn creates_through_two_handles_make_one_record<F: Fixture<Store: LeaseTable>>(
    case: Case<F>,
) {
    let (first, second) = case.two_handles().await;
    for (round, race) in case.races() {
        let key = name(&format!("conformance/creates-{round}"));

        let create = |store: &Arc<F::Store>| {
            let (store, key) = (Arc::clone(store), key.clone());
            async move { store.create(&key, &Attributes::new()).await }
        };
        let (one, other) = at_once(race, create(&first), create(&second)).await;

        assert!(
            matches!((&one, &other), (Ok(true), Ok(false)) | (Ok(false), Ok(true))),
            "of two concurrent creations through two handles, one should create the record and the \
             other should find the record: {one:?}, {other:?}"
        );
    }
}

/// Of two updates that expect the same value and arrive at once, exactly one is applied.
pub async fn updates_through_two_handles_apply_one<F: Fixture<Store: LeaseTable>>(case: Case<F>) {
    let (first, second) = case.two_handles().await;
    for (round, race) in case.races() {
        let key = name(&format!("conformance/updates-{round}"));
        let grant = case.obtain(&case.long_claim(&key, "a")).await;

        let update = |store: &Arc<F::Store>, value: &str| {
            let (store, grant) = (Arc::clone(store), grant.clone());
            let change = Change::new().expecting_none("sky").set("sky", value);
            async move { store.update(&grant, &change).await }
        };
        let (one, other) = at_once(race, update(&first, "1"), update(&second, "2")).await;

        let (Ok(one), Ok(other)) = (&one, &other) else {
            unreachable!("the store should answer updates: {one:?}, {other:?}")
        };
        let applied = [one, other].into_iter().filter(|written| **written == Written::Applied);
        assert_eq!(
            applied.count(),
            1,
            "of two concurrent updates through two handles that expect the same value, one should \
             be applied and the other should be Unexpected: {one:?}, {other:?}"
        );
    }
}
