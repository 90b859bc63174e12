//! Rows that another program has written: each request returns an error or an answer, and does not
//! panic.

use futures_util::StreamExt;
use lease_core::store::{Beat, LeaseTable, LockStore};
use lease_core::{Change, StoreError, StoreErrorKind};
use lease_postgres::PostgresStore;
use lease_test_servers::claims::{claim, obtain};

use crate::setting::{TTL, key, setting};

const SPOILED: [&str; 16] = [
    "token = NULL",
    "token = -1",
    "token = 9007199254740992",
    "token = 9223372036854775807",
    "lessee = NULL",
    "lessee = ''",
    "lessee = E'a\\nb'",
    "lessee = repeat('a', 5000)",
    "ends = 'infinity'",
    "queue = '1'",
    r#"queue = '[{"nonce": "a", "until": "b"}]'"#,
    "attributes = '[]'",
    "attributes = '1'",
    "attributes = 'null'",
    r#"attributes = '{"a": 1}'"#,
    r#"attributes = '{"a": {"N": "one"}}'"#,
];

async fn errors(store: &PostgresStore) -> Vec<StoreError> {
    let grant = claim(&key(), "a", TTL).granted(lease_core::FencingToken::new(1).unwrap());
    let mut errors = Vec::new();
    errors.extend(store.obtain(&claim(&key(), "b", TTL)).await.err());
    errors.extend(store.holder(&key()).await.err());
    errors.extend(store.read(&key()).await.err());
    errors.extend(store.heartbeat(&grant, Beat::new(1)).await.err());
    errors.extend(store.update(&grant, &Change::new().set("a", "b")).await.err());
    errors.extend(store.transfer(&grant, &grant.lessee, TTL).await.err());
    errors.extend(store.delete(&grant).await.err());
    errors.extend(store.release(&grant, None).await.err());
    errors.extend(store.adopt(&grant, &claim(&key(), "c", TTL)).await.err());
    errors.extend(store.evict(&key(), &grant.token.into()).await.err());
    errors.extend(store.list("").filter_map(async |item| item.err()).collect::<Vec<_>>().await);
    errors.extend(store.scan("").filter_map(async |item| item.err()).collect::<Vec<_>>().await);
    errors
}

#[tokio::test]
async fn unreadable_row_is_reported_as_corrupt() {
    let Some((server, store)) = setting().await else { return };
    for spoiled in SPOILED {
        server.command("TRUNCATE lease");
        obtain(&store, &key(), "a", TTL).await;
        server.command(&format!("UPDATE lease SET {spoiled}"));

        let errors = errors(&store).await;

        assert!(!errors.is_empty(), "{spoiled}");
        for error in errors {
            assert_eq!(error.kind(), StoreErrorKind::Corrupt, "{spoiled}: {error:?}");
        }
    }
}

#[tokio::test]
async fn invalid_but_free_rows_do_not_block_the_key() {
    let Some((server, store)) = setting().await else { return };
    for odd in [
        "ends = '-infinity'",
        "ends = NULL, until = '-infinity'",
        "ends = NULL, beat = NULL, request = -5, evicted = granted",
        "ends = NULL, lessee = NULL, last = granted, waits = true, only_for = 'nobody'",
    ] {
        server.command("TRUNCATE lease");
        obtain(&store, &key(), "a", TTL).await;
        server.command(&format!("UPDATE lease SET {odd}"));

        obtain(&store, &key(), "b", TTL).await;
    }
}

#[tokio::test]
async fn unreadable_row_does_not_hide_others_in_a_list() {
    let Some((server, store)) = setting().await else { return };
    for number in 0..3 {
        obtain(&store, &format!("job-{number}").parse().unwrap(), "a", TTL).await;
    }
    server.command("UPDATE lease SET ends = 'infinity' WHERE key = 'job-1'");
    server.command("INSERT INTO lease (key, kept) VALUES (E'job\\n', true)");

    let listed: Vec<_> = store.list("").collect().await;

    assert_eq!(listed.len(), 4);
    assert_eq!(listed.iter().filter(|record| record.is_ok()).count(), 2);
}

#[tokio::test]
async fn column_of_another_type_is_an_error() {
    let Some((server, store)) = setting().await else { return };
    for altered in ["token TYPE numeric", "lessee TYPE bytea USING lessee::bytea"] {
        server.command("DROP TABLE lease");
        crate::setting::builder(&server).create_table().await.unwrap();
        obtain(&store, &key(), "a", TTL).await;
        server.command(&format!("ALTER TABLE lease ALTER COLUMN {altered}"));

        let error = store.holder(&key()).await.unwrap_err();

        assert!(!error.is_retryable(), "{altered}: {error:?}");
    }
}
