//! A file of an earlier version is upgraded when a store opens it.

use std::time::Duration;

use lease_core::LeaseKey;
use lease_core::store::{Beat, Claim, Heartbeat, LockStore, Nonce, Obtained};
use lease_sqlite::SqliteStore;
use rusqlite::Connection;
use tempfile::TempDir;

/// What version 2 has added.
const DOWNGRADE: &str = "ALTER TABLE lease DROP COLUMN parent;
    ALTER TABLE lease DROP COLUMN parent_token;
    DROP TABLE waiter;
    PRAGMA user_version = 1;";

#[tokio::test]
async fn leases_of_version_1_are_kept() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("leases.db");
    let key: LeaseKey = "job".parse().unwrap();
    let lessee = "a".parse().unwrap();
    let claim = Claim::new(key.clone(), lessee, Nonce::random(), Duration::from_secs(600));
    let store = SqliteStore::open(&path).await.unwrap();
    let Obtained::Granted(grant, _) = store.obtain(&claim).await.unwrap() else {
        unreachable!("a new key is free")
    };
    store.close().await;
    Connection::open(&path).unwrap().execute_batch(DOWNGRADE).unwrap();

    let stores = (0..4).map(|_| SqliteStore::open(&path));
    let stores = futures_util::future::join_all(stores).await;

    for (number, store) in (1..).zip(stores) {
        let store = store.unwrap();
        assert_eq!(store.holder(&key).await.unwrap().unwrap().token, Some(grant.token));
        let beat = store.heartbeat(&grant, Beat::new(number)).await.unwrap();
        assert_eq!(beat, Heartbeat::Extended);
    }
    let version: i64 = Connection::open(&path)
        .unwrap()
        .query_row("PRAGMA user_version", [], |row| row.get(0))
        .unwrap();
    assert_eq!(version, 2);
}
