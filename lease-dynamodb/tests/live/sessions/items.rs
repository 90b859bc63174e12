//! The items of sessions and of the leases under them.

use lease_core::store::{Beat, Ended, LeaseTable, LockStore, Parent, SessionState, Sessions};
use lease_core::{Attributes, FencingToken, StoreErrorKind, Written};
use lease_dynamodb::DynamoDbStore;
use lease_test_servers::claims::{claim, fresh_key, granted, obtain};
use lease_test_servers::dynamodb::client_of;

use super::{TTL, child, child_claim, end, record, sessions, vacancy};
use crate::setup::{LONG, TABLE, builder, item, n, put, ready, s, server_and_store};

const DAY: i64 = 86_400;

#[tokio::test]
async fn item_under_session_names_the_session_and_has_no_expiry() {
    let (server, store) = server_and_store().await;
    let (worker, key) = (fresh_key("worker"), fresh_key("shard"));
    let session = obtain(&store, &worker, "a", LONG).await;

    let grant = child(&store, &key, &session).await;

    let held = item(&server, &key).await.unwrap();
    assert_eq!(held["parent"], s(worker.as_str()));
    assert_eq!(held["parent_token"], n(session.token.get()));
    assert_eq!(
        held["ttl_ms"],
        n((1 << 53) - 1),
        "an earlier version of this crate must not take it"
    );
    assert!(!held.contains_key("expires_at") && !held.contains_key("purge_at"), "{held:?}");

    store.release(&grant, None).await.unwrap();

    let free = item(&server, &key).await.unwrap();
    for column in ["lessee", "parent", "parent_token"] {
        assert!(!free.contains_key(column), "{free:?}");
    }
    assert!(free["purge_at"].is_n());
}

#[tokio::test]
async fn heartbeat_and_plain_grant_remove_the_session() {
    let (server, store) = server_and_store().await;
    let session = obtain(&store, &fresh_key("worker"), "a", LONG).await;
    let [handed, adopted] = ["handed", "adopted"].map(fresh_key);
    for key in [&handed, &adopted] {
        let grant = child(&store, key, &session).await;
        store.heartbeat(&grant, Beat::new(1)).await.unwrap();
        if key == &adopted {
            let claim = claim(key, "b", LONG);
            granted(store.adopt(&grant, &claim).await.unwrap());
        }

        let item = item(&server, key).await.unwrap();
        assert!(item.contains_key("expires_at") && !item.contains_key("parent"), "{item:?}");
    }
}

#[tokio::test]
async fn key_of_another_program_is_no_vacancy() {
    let (server, store) = server_and_store().await;
    let key = fresh_key("shard");
    put(&server, &[("lease_key", s(key.as_str())), ("lessee", s("other")), ("ttl_ms", n(0))]).await;
    assert_eq!(store.read(&key).await.unwrap().unwrap().holder, None, "it has expired");

    let record = record(&store, &key).await.unwrap();

    assert_eq!(record.holder.unwrap().lessee, "other".parse().unwrap());
}

/// Without the mark, DynamoDB could grant a late copy of the session's own claim under its token
/// again.
#[tokio::test]
async fn end_of_session_without_an_item_is_written() {
    let (server, store) = server_and_store().await;
    let key = fresh_key("worker");
    let session = Parent::from(&obtain(&store, &key, "a", LONG).await);
    server
        .client()
        .delete_item()
        .table_name(TABLE)
        .key("lease_key", s(key.as_str()))
        .send()
        .await
        .unwrap();

    let state = end(&store, &session).await.unwrap();

    assert!(matches!(state, SessionState::Ended(_)), "{state:?}");
    let shown = record(&store, &key).await;
    assert!(Ended::shown_by(&shown.unwrap(), &session).is_some());
    assert_eq!(store.read(&key).await.unwrap(), None, "the record is still absent");
    assert!(obtain(&store, &key, "b", LONG).await.token > session.token);
}

#[tokio::test]
async fn end_of_session_is_written_to_item_without_a_token() {
    let (server, store) = server_and_store().await;
    let key = fresh_key("worker");
    let session = Parent::from(&obtain(&store, &key, "a", LONG).await);
    put(&server, &[("lease_key", s(key.as_str())), ("note", s("mine"))]).await;

    let state = end(&store, &session).await.unwrap();

    assert!(matches!(state, SessionState::Ended(_)), "{state:?}");
    let item = item(&server, &key).await.unwrap();
    assert_eq!((&item["note"], &item["token"]), (&s("mine"), &n(session.token.get())));
}

#[tokio::test]
async fn session_with_a_token_that_was_never_granted_is_refused() {
    let (_server, store) = server_and_store().await;
    let key = fresh_key("worker");
    let first = obtain(&store, &key, "a", LONG).await;
    store.release(&first, None).await.unwrap();
    let second = obtain(&store, &key, "a", LONG).await;
    assert_eq!(store.delete(&second).await.unwrap(), Written::Applied);
    let later = obtain(&store, &key, "a", LONG).await;
    let unknown = FencingToken::new(later.token.get() + 1).unwrap();

    let refused = end(&store, &Parent::new(key.clone(), unknown)).await.unwrap_err();

    assert_eq!(refused.kind(), StoreErrorKind::Refused);
    assert!(store.holder(&key).await.unwrap().is_some());
}

#[tokio::test]
async fn deleted_record_is_obtained_under_session() {
    let (_server, store) = server_and_store().await;
    let session = obtain(&store, &fresh_key("worker"), "a", LONG).await;
    let key = fresh_key("shard");
    let first = child(&store, &key, &session).await;
    assert_eq!(store.delete(&first).await.unwrap(), Written::Applied);

    let second = child(&store, &key, &session).await;

    assert!(second.token > first.token);
    assert_eq!(record(&store, &key).await.unwrap().attributes, Attributes::new());
}

#[tokio::test]
async fn only_unused_items_of_sessions_are_purged() {
    let (server, now) = server_and_store().await;
    let (proxy, clock) = server.at_another_time().await;
    clock.set(-8 * DAY);
    let then = ready(&server, &client_of(proxy.address())).await;
    let session = obtain(&then, &fresh_key("worker"), "a", TTL).await;
    let [held, released, by_hand, counted] =
        ["held", "released", "by hand", "counted"].map(fresh_key);
    put(&server, &[("lease_key", s(by_hand.as_str()))]).await;
    sessions(&then).count(&counted, "changes").await.unwrap();

    child(&then, &held, &session).await;
    for key in [&released, &by_hand, &counted] {
        let grant = child(&then, key, &session).await;
        then.release(&grant, None).await.unwrap();
    }

    assert_eq!(server.sweep(), 2, "the released key and the session");
    assert_eq!(item(&server, &released).await, None);
    for key in [&held, &by_hand, &counted] {
        assert!(item(&server, key).await.is_some(), "{key}");
    }
    // The key may have been granted since the read, so the claim on the purged item is refused.
    assert!(now.holder(&held).await.unwrap().is_some());
}

#[tokio::test]
async fn key_without_an_item_is_refused_by_store_of_existing_rows() {
    let (server, store) = server_and_store().await;
    let session = obtain(&store, &fresh_key("worker"), "a", LONG).await;
    let strict = builder(&server, &server.client()).only_existing_rows().build().unwrap();
    let key = fresh_key("shard");

    let vacancy = vacancy(&strict, &key).await;
    let refused = strict.obtain_under(&child_claim(&key, &session), &vacancy).await.unwrap_err();

    assert_eq!(refused.kind(), StoreErrorKind::Misconfigured);
    assert_eq!(item(&server, &key).await, None);
}

/// The lock client changes items without a larger token.
#[tokio::test]
async fn store_of_lock_client_items_keeps_no_sessions() {
    let (server, store) = server_and_store().await;
    let lenient: DynamoDbStore =
        builder(&server, &server.client()).with_lock_client_items().build().unwrap();
    assert!(lenient.sessions().is_none());
    let session = obtain(&store, &fresh_key("worker"), "a", LONG).await;
    let key = fresh_key("shard");
    put(&server, &[("lease_key", s(key.as_str())), ("recordVersionNumber", s("1"))]).await;

    let vacancy = vacancy(&store, &key).await;
    let refused = store.obtain_under(&child_claim(&key, &session), &vacancy).await.unwrap_err();

    assert_eq!(refused.kind(), StoreErrorKind::Misconfigured);
}
