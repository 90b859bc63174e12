//! Tests with lost, late, doubled and reordered requests and answers.

use std::time::Duration;

use aws_sdk_dynamodb::Client;
use lease_core::store::{Beat, BootClock, Clock, Heartbeat, LeaseTable, LockStore};
use lease_core::{Change, LeaseOptions, Locker, StoreErrorKind, Value, Written};
use lease_dynamodb::DynamoDbStore;
use lease_test_servers::claims::{claim, fresh_key, granted, held, obtain, soon};
use lease_test_servers::dynamodb::{Server, client_of, config_of};
use lease_test_servers::proxy::{Fault, Proxy};

use crate::setup::{LONG, MARGINS, TABLE, item, server_and_store, with_short_timeout};

const UPDATE: &str = "UpdateItem";

async fn behind_a_proxy() -> (Server, DynamoDbStore, Proxy, DynamoDbStore) {
    let (server, store) = server_and_store().await;
    let proxy = server.proxy().await;
    let behind = with_short_timeout(&proxy);
    assert_eq!(behind.holder(&fresh_key("nothing")).await.unwrap(), None);
    (server, store, proxy, behind)
}

#[tokio::test]
async fn obtain_after_lost_answer_returns_same_grant() {
    for fault in [Fault::LoseReply, Fault::CutAfter] {
        let (server, _, proxy, store) = behind_a_proxy().await;
        let key = fresh_key("job");
        let claim = claim(&key, "a", LONG);

        proxy.next_with(UPDATE, fault);
        let error = store.obtain(&claim).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unavailable);
        let applied = item(&server, &key).await;
        let (grant, _) = granted(store.obtain(&claim).await.unwrap());

        assert_eq!(grant, claim.granted_before(grant.token));
        assert_eq!(item(&server, &key).await, applied, "the second request should change nothing");
    }
}

#[tokio::test]
async fn obtain_after_lost_request_is_granted() {
    for fault in [Fault::LoseRequest, Fault::CutBefore] {
        let (_server, _, proxy, store) = behind_a_proxy().await;
        let claim = claim(&fresh_key("job"), "a", LONG);

        proxy.next_with(UPDATE, fault);
        store.obtain(&claim).await.unwrap_err();

        granted(store.obtain(&claim).await.unwrap());
    }
}

#[tokio::test]
async fn retry_by_sdk_returns_same_grant() {
    let (_server, _, proxy, _) = behind_a_proxy().await;
    let retrying = DynamoDbStore::new(Client::from_conf(config_of(proxy.address()).build()), TABLE);
    let key = fresh_key("job");
    let claim = claim(&key, "a", LONG);

    proxy.next_with(UPDATE, Fault::CutAfter);
    let (grant, _) = granted(retrying.obtain(&claim).await.unwrap());
    proxy.next_with(UPDATE, Fault::CutAfter);
    retrying.release(&grant, None).await.unwrap();

    assert_eq!(retrying.holder(&key).await.unwrap(), None);
}

/// The README recommends to read the record and to compare.
#[tokio::test]
async fn read_after_lost_answer_shows_update() {
    let (_server, direct, proxy, store) = behind_a_proxy().await;
    let key = fresh_key("shard");
    let grant = obtain(&store, &key, "a", LONG).await;
    let retrying = DynamoDbStore::new(Client::from_conf(config_of(proxy.address()).build()), TABLE);
    let first = Change::new().expecting_none("checkpoint").set("checkpoint", "1");
    let second = Change::new().expecting("checkpoint", "1").set("checkpoint", "2");

    proxy.next_with(UPDATE, Fault::CutAfter);
    store.update(&grant, &first).await.unwrap_err();
    let repeated = store.update(&grant, &first).await.unwrap();
    proxy.next_with(UPDATE, Fault::CutAfter);
    let repeated_by_the_sdk = retrying.update(&grant, &second).await.unwrap();

    assert_eq!((repeated, repeated_by_the_sdk), (Written::Unexpected, Written::Unexpected));
    let found = direct.read(&key).await.unwrap().unwrap().attributes;
    assert_eq!(found.get("checkpoint"), Some(&Value::from("2")));
}

#[tokio::test]
async fn release_with_lost_answer_frees_key() {
    let (_server, direct, proxy, store) = behind_a_proxy().await;
    let key = fresh_key("job");
    let grant = obtain(&store, &key, "a", LONG).await;

    proxy.next_with(UPDATE, Fault::LoseReply);
    store.release(&grant, None).await.unwrap_err();
    let successor = obtain(&direct, &key, "b", LONG).await;
    store.release(&grant, None).await.unwrap();

    let holder = direct.holder(&key).await.unwrap().unwrap();
    assert_eq!(holder.token, Some(successor.token));
}

#[tokio::test]
async fn heartbeat_after_lost_answer_is_overtaken() {
    let (server, _, proxy, store) = behind_a_proxy().await;
    let key = fresh_key("job");
    let grant = obtain(&store, &key, "a", LONG).await;

    proxy.next_with(UPDATE, Fault::LoseReply);
    store.heartbeat(&grant, Beat::new(1)).await.unwrap_err();
    let applied = item(&server, &key).await;
    let again = store.heartbeat(&grant, Beat::new(1)).await.unwrap();

    assert_eq!(again, Heartbeat::Overtaken);
    assert_eq!(item(&server, &key).await, applied);
    let next = store.heartbeat(&grant, Beat::new(2)).await.unwrap();
    assert_eq!(next, Heartbeat::Extended);
}

#[tokio::test]
async fn doubled_request_has_one_effect() {
    let (server, _, proxy, store) = behind_a_proxy().await;
    let key = fresh_key("job");

    proxy.next_with(UPDATE, Fault::Double);
    let grant = obtain(&store, &key, "a", LONG).await;
    assert_eq!(store.holder(&key).await.unwrap().unwrap().token, Some(grant.token));
    proxy.next_with(UPDATE, Fault::Double);
    let answer = store.heartbeat(&grant, Beat::new(1)).await.unwrap();
    assert_eq!(answer, Heartbeat::Extended);
    proxy.next_with(UPDATE, Fault::Double);
    store.release(&grant, None).await.unwrap();

    assert_eq!(store.holder(&key).await.unwrap(), None);
    assert!(!item(&server, &key).await.unwrap().contains_key("lessee"));
}

#[tokio::test]
async fn late_heartbeat_after_newer_heartbeat_changes_nothing() {
    let (server, direct, proxy, store) = behind_a_proxy().await;
    let key = fresh_key("job");
    let grant = obtain(&direct, &key, "a", LONG).await;
    let mut short = grant.clone();
    short.ttl = Duration::from_millis(100);

    let mut held_back = proxy.hold_next_with(UPDATE);
    let sent = store.heartbeat(&short, Beat::new(1));
    let (answer, ()) = tokio::join!(sent, held_back.arrived());
    answer.unwrap_err();
    let newer = direct.heartbeat(&grant, Beat::new(2)).await.unwrap();
    assert_eq!(newer, Heartbeat::Extended);
    let before = item(&server, &key).await;
    held_back.deliver().await;

    assert_eq!(item(&server, &key).await, before);
}

#[tokio::test]
async fn late_heartbeat_after_release_changes_nothing() {
    let (server, direct, proxy, store) = behind_a_proxy().await;
    let key = fresh_key("job");
    let grant = obtain(&direct, &key, "a", LONG).await;

    let mut held_back = proxy.hold_next_with(UPDATE);
    let (answer, ()) = tokio::join!(store.heartbeat(&grant, Beat::new(1)), held_back.arrived());
    answer.unwrap_err();
    direct.release(&grant, None).await.unwrap();
    let before = item(&server, &key).await;
    held_back.deliver().await;

    assert_eq!(item(&server, &key).await, before);
    assert_eq!(direct.holder(&key).await.unwrap(), None);
}

#[tokio::test]
async fn late_release_does_not_free_successors_grant() {
    let (server, direct, proxy, store) = behind_a_proxy().await;
    let key = fresh_key("job");
    let grant = obtain(&direct, &key, "a", LONG).await;

    let mut held_back = proxy.hold_next_with(UPDATE);
    let (answer, ()) = tokio::join!(store.release(&grant, None), held_back.arrived());
    answer.unwrap_err();
    direct.release(&grant, None).await.unwrap();
    obtain(&direct, &key, "a", LONG).await;
    let before = item(&server, &key).await;
    held_back.deliver().await;

    assert_eq!(item(&server, &key).await, before);
}

#[tokio::test]
async fn late_duplicate_of_obtain_does_not_take_released_key() {
    let (_server, direct, proxy, store) = behind_a_proxy().await;
    let key = fresh_key("job");
    let claim = claim(&key, "a", LONG);

    let mut held_back = proxy.hold_next_with(UPDATE);
    let (answer, ()) = tokio::join!(store.obtain(&claim), held_back.arrived());
    answer.unwrap_err();
    let (grant, _) = granted(direct.obtain(&claim).await.unwrap());
    direct.release(&grant, None).await.unwrap();
    held_back.deliver().await;

    assert_eq!(direct.holder(&key).await.unwrap(), None);
    obtain(&direct, &key, "b", LONG).await;
}

/// The README's table of events documents this exception.
#[tokio::test]
async fn late_claim_after_release_of_other_grant_blocks_key_for_ttl() {
    let (server, direct, proxy, store) = behind_a_proxy().await;
    let (other_time, clock) = server.at_another_time().await;
    let key = fresh_key("job");

    let mut held_back = proxy.hold_next_with(UPDATE);
    let late = claim(&key, "a", LONG);
    let (answer, ()) = tokio::join!(store.obtain(&late), held_back.arrived());
    answer.unwrap_err();
    let other = obtain(&direct, &key, "b", LONG).await;
    direct.release(&other, None).await.unwrap();
    held_back.deliver().await;

    let holder = held(direct.obtain(&claim(&key, "c", LONG)).await.unwrap());
    assert_eq!(holder.lessee.as_str(), "a");
    clock.set(i64::try_from((LONG + MARGINS).as_secs()).unwrap());
    let later = DynamoDbStore::new(client_of(other_time.address()), TABLE);
    granted(later.obtain(&claim(&key, "c", LONG)).await.unwrap());
}

#[tokio::test]
async fn dropped_attempt_leaves_no_lease() {
    for fault in [Fault::LoseReply, Fault::CutAfter, Fault::LoseRequest] {
        let (_server, direct, proxy, store) = behind_a_proxy().await;
        let options = LeaseOptions::new(Duration::from_secs(30)).unwrap();
        let locker = Locker::new(store).with_options(options);
        let key = fresh_key("job");

        proxy.next_with(UPDATE, fault);
        let attempt = tokio::time::timeout(Duration::from_millis(50), locker.obtain(&key)).await;
        drop(attempt);
        soon(locker.close()).await;

        assert_eq!(direct.holder(&key).await.unwrap(), None);
    }
}

#[tokio::test]
async fn slow_network_shortens_remaining_but_not_lease() {
    let (_server, direct, proxy, _) = behind_a_proxy().await;
    let ttl = LONG;
    let slow = DynamoDbStore::new(client_of(proxy.address()), TABLE);
    let locker = Locker::new(slow).with_options(LeaseOptions::new(ttl).unwrap());
    let key = fresh_key("job");
    let clock = BootClock::new();
    proxy.set_delay(Duration::from_millis(200));

    let before = clock.now();
    let lease = locker.obtain(&key).await.unwrap().into_lease().unwrap();
    let remaining = lease.remaining();
    let waited = clock.now().since(before);

    assert!(remaining + waited <= ttl + Duration::from_millis(1), "{remaining:?} {waited:?}");
    held(direct.obtain(&claim(&key, "b", ttl)).await.unwrap());
    lease.release().await.unwrap();
}
