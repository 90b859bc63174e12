//! Tests of the number of requests per operation.

use std::time::Duration;

use aws_sdk_dynamodb::Client;
use futures_util::StreamExt;
use lease_core::store::{Beat, BootClock, Clock, LeaseTable, LockStore};
use lease_core::{Attributes, Change, Written};
use lease_dynamodb::{DynamoDbStore, TimeMode};
use lease_test_servers::claims::{claim, fresh_key, granted, held, obtain};
use lease_test_servers::dynamodb::{Count, Server, client_of};

use crate::setup::{LONG, MARGINS, TABLE, put, ready, s, with_long_timeout};

pub(crate) async fn counted() -> (Server, Count, Client, DynamoDbStore) {
    let server = Server::dynoxide().await;
    let (count, config) = Count::of(server.config());
    let client = Client::from_conf(config.build());
    let store = ready(&server, &client).await;
    count.take();
    (server, count, client, store)
}

#[tokio::test]
async fn each_operation_is_one_request() {
    let (_server, count, _, store) = counted().await;
    let key = fresh_key("job");

    let grant = obtain(&store, &key, "a", LONG).await;
    assert_eq!(count.take(), 1, "obtain");
    store.heartbeat(&grant, Beat::new(1)).await.unwrap();
    assert_eq!(count.take(), 1, "heartbeat");
    held(store.obtain(&claim(&key, "b", LONG)).await.unwrap());
    assert_eq!(count.take(), 1, "obtain of a held key");
    store.holder(&key).await.unwrap();
    assert_eq!(count.take(), 1, "holder");
    store.read(&key).await.unwrap();
    assert_eq!(count.take(), 1, "read");
    let change = Change::new().set("checkpoint", "1");
    assert_eq!(store.update(&grant, &change).await.unwrap(), Written::Applied);
    assert_eq!(count.take(), 1, "update");
    let change = change.expecting_none("checkpoint");
    assert_eq!(store.update(&grant, &change).await.unwrap(), Written::Unexpected);
    assert_eq!(count.take(), 1, "an update with another expected value");
    let (grant, _) = granted(store.adopt(&grant, &claim(&key, "b", LONG)).await.unwrap());
    assert_eq!(count.take(), 1, "adopt");
    store.evict(&key, &grant.token.into()).await.unwrap();
    assert_eq!(count.take(), 1, "evict");
    store.heartbeat(&grant, Beat::new(1)).await.unwrap();
    assert_eq!(count.take(), 1, "heartbeat of an evicted grant");
    store.release(&grant, None).await.unwrap();
    assert_eq!(count.take(), 1, "release");
    let grant = obtain(&store, &key, "a", LONG).await;
    assert_eq!(count.take(), 1, "obtain of a record with attributes");
    let to = "b".parse().unwrap();
    assert_eq!(store.transfer(&grant, &to, LONG).await.unwrap(), Written::Applied);
    assert_eq!(count.take(), 1, "transfer");
    let grant = obtain(&store, &key, "b", LONG).await;
    assert_eq!(count.take(), 1, "obtain of a transferred key");
    assert_eq!(store.delete(&grant).await.unwrap(), Written::Applied);
    assert_eq!(count.take(), 1, "delete");
    assert!(store.create(&key, &Attributes::new()).await.unwrap());
    assert_eq!(count.take(), 1, "create");
    obtain(&store, &key, "a", LONG).await;
    assert_eq!(count.take(), 1, "obtain of a created record");
    assert_eq!(store.list("").count().await, 1);
    assert_eq!(count.take(), 1, "list");
}

#[tokio::test]
async fn refused_claim_returns_holder_in_one_request() {
    let (_server, count, _, store) = counted().await;
    let (key, clock) = (fresh_key("job"), BootClock::new());
    let since = clock.now();
    let grant = obtain(&store, &key, "a", LONG).await;
    count.take();

    let holder = held(store.obtain(&claim(&key, "b", LONG)).await.unwrap());

    assert_eq!(count.take(), 1);
    assert_eq!((holder.lessee, holder.token), (grant.lessee, Some(grant.token)));
    let left = holder.expires_in.unwrap();
    assert!(left + clock.now().since(since) > LONG && left < LONG + MARGINS, "{left:?}");
}

#[tokio::test]
async fn first_grant_of_process_costs_one_request_more() {
    let (_server, count, client, _) = counted().await;
    let fresh = with_long_timeout(client, TABLE).build().unwrap();

    let key = fresh_key("job");
    obtain(&fresh, &key, "a", LONG).await;
    assert_eq!(count.take(), 2);

    held(fresh.obtain(&claim(&key, "b", LONG)).await.unwrap());
    obtain(&fresh, &fresh_key("job"), "a", LONG).await;
    assert_eq!(count.take(), 2);
}

#[tokio::test]
async fn first_grant_of_item_made_by_hand_costs_one_more_request() {
    let (server, count, _, store) = counted().await;
    let key = fresh_key("job");
    put(&server, &[("lease_key", s(key.as_str())), ("note", s("mine"))]).await;

    let grant = obtain(&store, &key, "a", LONG).await;
    assert_eq!(count.take(), 2);
    store.release(&grant, None).await.unwrap();
    count.take();

    obtain(&store, &key, "a", LONG).await;
    assert_eq!(count.take(), 1);
}

/// A refused write costs as much as an applied write, and a read of a small item a fifth of a
/// write.
#[tokio::test]
async fn waiters_read_while_key_is_held_and_write_once_it_is_free() {
    let (server, _, _, store) = counted().await;
    let proxy = server.proxy().await;
    let key = fresh_key("job");
    let waiters: Vec<_> = (0..8)
        .map(|_| with_long_timeout(client_of(proxy.address()), TABLE).build().unwrap())
        .collect();
    let mut grant = obtain(&store, &key, "holder", LONG).await;
    for waiter in &waiters {
        held(waiter.obtain(&claim(&key, "waiter", LONG)).await.unwrap());
    }
    let requests = || {
        let count =
            |operation: &str| proxy.requests_with(&format!("DynamoDB_20120810.{operation}"));
        (count("UpdateItem"), count("GetItem"))
    };
    let (writes_before, reads_before) = requests();

    for next in &waiters {
        for waiter in waiters.iter().cycle().take(24) {
            held(waiter.obtain(&claim(&key, "waiter", LONG)).await.unwrap());
        }
        store.release(&grant, None).await.unwrap();
        grant = granted(next.obtain(&claim(&key, "waiter", LONG)).await.unwrap()).0;
        for waiter in waiters.iter().filter(|waiter| !std::ptr::eq(*waiter, next)) {
            held(waiter.obtain(&claim(&key, "waiter", LONG)).await.unwrap());
        }
        held(next.obtain(&claim(&key, "other", LONG)).await.unwrap());
    }

    let (writes, reads) = requests();
    // One write takes the key. Then the same store claims the key for another lessee. That claim is
    // also a write, since the store has not observed its own grant.
    assert_eq!(writes - writes_before, 8 * 2, "writes in 8 hand-overs among 8 waiters");
    assert_eq!(reads - reads_before, 8 * (24 + 1 + 7), "reads in 8 hand-overs among 8 waiters");
}

#[tokio::test]
async fn takeover_by_observation_costs_one_read_more() {
    let (server, _, _, store) = counted().await;
    let (count, config) = Count::of(server.config());
    let client = Client::from_conf(config.build());
    let watcher =
        with_long_timeout(client, TABLE).with_time_mode(TimeMode::ObservationOnly).build().unwrap();
    let (key, ttl) = (fresh_key("job"), Duration::from_millis(300));
    obtain(&store, &key, "dead", ttl).await;
    held(watcher.obtain(&claim(&key, "b", ttl)).await.unwrap());
    count.take();

    tokio::time::sleep(ttl * 2).await;
    granted(watcher.obtain(&claim(&key, "b", ttl)).await.unwrap());

    assert!(count.take() <= 2, "at most one read, and one write");
}
