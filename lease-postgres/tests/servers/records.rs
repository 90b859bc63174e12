//! Records, lists of several pages, and the removal of old rows.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use lease_core::store::{LeaseTable, LockStore};
use lease_core::{Attributes, Change, StoreErrorKind, Value, Written};
use lease_test_servers::claims::{claim, obtain};

use crate::setting::{TTL, builder, connected, key, session, setting};

#[tokio::test]
async fn list_and_scan_cross_pages() {
    let Some((server, store)) = setting().await else { return };
    server.command(
        "INSERT INTO lease (key, kept, attributes) \
         SELECT 'a/' || lpad(n::text, 4, '0'), true, '{}' FROM generate_series(1, 2100) n",
    );
    server.command("INSERT INTO lease (key, kept) VALUES ('a', true), ('b/1', true), ('ä', true)");
    let held = obtain(&store, &"a/2099".parse().unwrap(), "a", TTL).await;

    let listed: Vec<_> = store.list("a/").try_collect().await.unwrap();
    let scanned: Vec<_> = store.scan("").try_collect().await.unwrap();

    let keys: BTreeSet<_> = listed.iter().map(|record| record.key.as_str()).collect();
    assert_eq!((listed.len(), keys.len()), (2100, 2100), "each once");
    assert!(keys.iter().all(|key| key.starts_with("a/")));
    assert_eq!(scanned.len(), 1);
    assert_eq!(scanned[0].key, held.key);
    assert_eq!(store.list("").count().await, 2103);
}

#[tokio::test]
async fn key_that_was_only_leased_has_no_record_later() {
    let Some((_server, store)) = setting().await else { return };
    let grant = obtain(&store, &key(), "a", TTL).await;
    assert!(store.read(&key()).await.unwrap().is_some());
    assert!(!store.create(&key(), &Attributes::new()).await.unwrap(), "it is held");

    store.release(&grant, None).await.unwrap();

    assert_eq!(store.read(&key()).await.unwrap(), None);
    assert_eq!(store.list("").count().await, 0);
    assert!(store.create(&key(), &Attributes::new()).await.unwrap());
    assert_eq!(store.list("").count().await, 1);
    let next = obtain(&store, &key(), "b", TTL).await;
    assert!(next.token > grant.token, "{} after {}", next.token, grant.token);
}

#[tokio::test]
async fn purge_deletes_old_rows_without_records() {
    let Some((server, store)) = setting().await else { return };
    for number in 0..5 {
        let grant = obtain(&store, &format!("job-{number}").parse().unwrap(), "a", TTL).await;
        match number {
            0 => continue, // held
            1 => drop(store.update(&grant, &Change::new().set("a", "b")).await),
            _ => (),
        }
        let reserved = (number == 2).then_some(TTL);
        store.release(&grant, reserved).await.unwrap();
    }

    assert_eq!(store.purge(Duration::from_secs(3600)).await.unwrap(), 0, "all were just used");
    assert_eq!(store.purge(Duration::ZERO).await.unwrap(), 2);

    let left = server.command("SELECT key FROM lease ORDER BY key");
    assert_eq!(left, "job-0\njob-1\njob-2", "held, with a record, reserved");
}

#[tokio::test]
async fn deep_attribute_is_refused() {
    let Some((_server, store)) = setting().await else { return };
    let deep = (0..40).fold(Value::Null, |value, _| Value::List(vec![value]));

    let attributes = Attributes::from([("deep".to_owned(), deep)]);
    let refused = store.create(&key(), &attributes).await.unwrap_err();

    assert_eq!(refused.kind(), StoreErrorKind::Refused);
    let claim = claim(&key(), "a", TTL).with_attributes(attributes);
    assert_eq!(store.obtain(&claim).await.unwrap_err().kind(), StoreErrorKind::Refused);
    assert_eq!(store.holder(&key()).await.unwrap(), None);
}

/// PostgreSQL's texts and `jsonb` refuse the character NUL.
#[tokio::test]
async fn names_with_special_characters_are_kept() {
    let Some((_server, store)) = setting().await else { return };
    let grant = obtain(&store, &key(), "a", TTL).await;
    let names = ["\0", "\u{10}", "\u{10}0", "a\"b", "ä→", "", "{}", "$1"];
    let set = names.iter().fold(Change::new(), |change, name| change.set(*name, *name));
    assert_eq!(store.update(&grant, &set).await.unwrap(), Written::Applied);

    let change = names.iter().fold(Change::new(), |change, name| change.expecting(*name, *name));
    let change = names[..4].iter().fold(change, |change, name| change.remove(*name));
    let changed = store.update(&grant, &change.expecting_none("none")).await.unwrap();

    assert_eq!(changed, Written::Applied);
    let record = store.read(&key()).await.unwrap().unwrap();
    let left: BTreeSet<_> = record.attributes.keys().map(String::as_str).collect();
    assert_eq!(left, BTreeSet::from(["ä→", "", "{}", "$1"]));
}

#[tokio::test]
async fn tables_share_no_leases() {
    let Some((server, store)) = setting().await else { return };
    server.command("CREATE SCHEMA app");
    let other = connected(builder(&server).with_table("app.lease")).await;
    let odd = connected(builder(&server).with_table("Odd name; --")).await;

    for store in [&store, &other, &odd] {
        obtain(store, &key(), "a", TTL).await;
    }
}

#[tokio::test]
async fn refused_claim_writes_nothing() {
    let Some((server, store)) = setting().await else { return };
    obtain(&store, &key(), "a", TTL).await;

    // The server's own tasks may write a few transactions in this time.
    assert!(written_by_claims(&server, &store).await < 50, "refused claims write");

    // Without the condition, the upsert locks the row, and the lock is a write.
    let gate = ("WHERE NOT EXISTS (", "WHERE true OR NOT EXISTS (");
    let open = builder(&server).with_altered_statement("obtain", gate.0, gate.1);
    let open = connected(open).await;
    assert!(written_by_claims(&server, &open).await >= 100, "the condition is not needed");
}

/// Returns the number of transactions that wrote during 100 claims for a held key.
async fn written_by_claims(
    server: &lease_test_servers::postgres::PostgresServer,
    store: &lease_postgres::PostgresStore,
) -> i64 {
    let session = session(server).await;
    let next = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint";
    let before: i64 = session.query_one(next, &[]).await.unwrap().get(0);
    for _ in 0..100 {
        drop(store.obtain(&claim(&key(), "b", TTL)).await.unwrap());
    }
    session.query_one(next, &[]).await.unwrap().get::<_, i64>(0) - before
}
