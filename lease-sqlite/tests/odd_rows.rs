//! Rows that another program has changed cause an error or an answer, but no panic and no hang.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use futures_util::StreamExt;
use lease_core::store::{
    Beat, Claim, Ended, Grant, LeaseTable, LockStore, Nonce, Obtained, Parent, Sessions, Vacancy,
};
use lease_core::{Attributes, Change, LeaseKey, StoreError, StoreErrorKind, Value};
use lease_sqlite::SqliteStore;
use proptest::prelude::*;
use rusqlite::Connection;
use rusqlite::types::Value as Sql;
use tempfile::TempDir;

const COLUMNS: [&str; 20] = [
    "key",
    "boot",
    "token",
    "nonce",
    "request",
    "lessee",
    "ttl",
    "ends",
    "beat",
    "evicted",
    "last",
    "last_lessee",
    "freed",
    "reserved",
    "until",
    "only_for",
    "record",
    "attributes",
    "parent",
    "parent_token",
];

fn odd_value() -> impl Strategy<Value = Sql> {
    prop_oneof![
        Just(Sql::Null),
        any::<i64>().prop_map(Sql::Integer),
        prop::sample::select(vec![0, -1, 1 << 53, (1 << 53) - 1, i64::MAX, i64::MIN])
            .prop_map(Sql::Integer),
        any::<String>().prop_map(Sql::Text),
        prop::sample::select(vec![
            "",
            "lasting",
            "temporary",
            "{}",
            "[]",
            "{\"a\":1}",
            "{\"a\":[\"N\",\"x\"]}",
            "{\"a\":[]}",
            "\u{0}",
            "0123456789abcdef0123456789abcdef",
        ])
        .prop_map(|text| Sql::Text(text.to_owned())),
    ]
}

fn claim(key: &LeaseKey) -> Claim {
    let attributes = Attributes::from([("sky".to_owned(), Value::from("blue"))]);
    let claim =
        Claim::new(key.clone(), "a".parse().unwrap(), Nonce::random(), Duration::from_secs(9));
    claim.with_attributes(attributes)
}

async fn asks_all(store: &SqliteStore, key: &LeaseKey, grant: &Grant) -> Vec<StoreError> {
    let change = Change::new().expecting("sky", "blue").set("sea", "grey").remove("sky");
    let mut errors = Vec::new();
    errors.extend(store.holder(key).await.err());
    errors.extend(store.read(key).await.err());
    errors.extend(store.obtain(&claim(key)).await.err());
    errors.extend(store.heartbeat(grant, Beat::new(1)).await.err());
    errors.extend(store.update(grant, &change).await.err());
    errors.extend(store.create(key, &Attributes::new()).await.err());
    errors.extend(store.evict(key, &grant.token.into()).await.err());
    errors.extend(store.adopt(grant, &claim(key)).await.err());
    errors.extend(store.transfer(grant, &grant.lessee, Duration::from_secs(1)).await.err());
    errors.extend(store.delete(grant).await.err());
    errors.extend(store.release(grant, None).await.err());
    errors.extend(store.watch(key).await.err());
    let session = Parent::from(grant);
    for read in store.read_all(std::slice::from_ref(key)).await {
        match read {
            Ok(record) => {
                let proof = Ended::written(session.clone());
                let seen = Vacancy::seen(key, record.as_ref(), &grant.lessee, Some(&proof));
                if let Some(seen) = seen {
                    errors.extend(store.obtain_under(&claim(key), &seen).await.err());
                }
            }
            Err(error) => errors.push(error),
        }
    }
    errors.extend(store.end_session(&session).await.err());
    errors.extend(store.count(key, "count").await.err());
    errors.extend(store.list("").filter_map(async |record| record.err()).collect::<Vec<_>>().await);
    errors.extend(store.scan("").filter_map(async |held| held.err()).collect::<Vec<_>>().await);
    errors
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..Default::default() })]

    #[test]
    fn odd_value_gives_an_error_or_an_answer(
        changes in prop::collection::vec((prop::sample::select(COLUMNS.to_vec()), odd_value()), 1..4),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let folder = TempDir::new().unwrap();
            let path = folder.path().join("leases.db");
            let store = SqliteStore::open(&path).await.unwrap();
            let [key, sound] = ["job", "sound"].map(|name| name.parse::<LeaseKey>().unwrap());
            let Obtained::Granted(grant, _) = store.obtain(&claim(&key)).await.unwrap() else {
                unreachable!("a new key is free")
            };
            let other = Connection::open(&path).unwrap();
            other.pragma_update(None, "ignore_check_constraints", true).unwrap();
            for (column, value) in &changes {
                // A strict table refuses a value of another type.
                drop(other.execute(&format!("UPDATE lease SET {column} = ?"), [value]));
            }

            for error in asks_all(&store, &key, &grant).await {
                assert_eq!(error.kind(), StoreErrorKind::Corrupt, "{changes:?}: {error:?}");
            }

            let Obtained::Granted(grant, _) = store.obtain(&claim(&sound)).await.unwrap() else {
                unreachable!("a new key is free")
            };
            store.release(&grant, None).await.unwrap();
        });
    }
}
