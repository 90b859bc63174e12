//! How many requests each operation costs.

use std::time::Duration;

use aws_sdk_dynamodb::Client;
use futures_util::StreamExt;
use lease_core::{Attributes, Beat, Change, LeaseTable, LockStore, Written};
use lease_dynamodb::DynamoDbStore;
use lease_tests::claims::{claim, fresh_key, granted, held, obtain};
use lease_tests::dynamodb::{Count, Server};

use crate::world::{LONG, TABLE, put, ready, s};

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
    assert_eq!(count.take(), 1, "an update that expects something else");
    let (grant, _) = granted(store.adopt(&grant, &claim(&key, "b", LONG)).await.unwrap());
    assert_eq!(count.take(), 1, "adopt");
    store.evict(&key, grant.token).await.unwrap();
    assert_eq!(count.take(), 1, "evict");
    store.heartbeat(&grant, Beat::new(1)).await.unwrap();
    assert_eq!(count.take(), 1, "a lost heartbeat");
    store.release(&grant, None).await.unwrap();
    assert_eq!(count.take(), 1, "release");
    let grant = obtain(&store, &key, "a", LONG).await;
    assert_eq!(count.take(), 1, "obtain of a record with attributes");
    let to = "b".parse().unwrap();
    assert_eq!(store.transfer(&grant, &to, LONG).await.unwrap(), Written::Applied);
    assert_eq!(count.take(), 1, "transfer");
    let grant = obtain(&store, &key, "b", LONG).await;
    assert_eq!(count.take(), 1, "obtain of what was transferred");
    assert_eq!(store.delete(&grant).await.unwrap(), Written::Applied);
    assert_eq!(count.take(), 1, "delete");
    assert!(store.create(&key, &Attributes::new()).await.unwrap());
    assert_eq!(count.take(), 1, "create");
    obtain(&store, &key, "a", LONG).await;
    assert_eq!(count.take(), 1, "obtain of what was created");
    assert_eq!(store.list("").count().await, 1);
    assert_eq!(count.take(), 1, "list");
}

#[tokio::test]
async fn a_refused_claim_tells_the_holder_and_its_time_without_asking_again() {
    let (_server, count, _, store) = counted().await;
    let key = fresh_key("job");
    let grant = obtain(&store, &key, "a", LONG).await;
    count.take();

    let holder = held(store.obtain(&claim(&key, "b", LONG)).await.unwrap());

    assert_eq!(count.take(), 1);
    assert_eq!((holder.lessee, holder.token), (grant.lessee, grant.token));
    let left = holder.expires_in.unwrap();
    assert!(left > Duration::from_secs(58) && left < Duration::from_secs(66), "{left:?}");
}

#[tokio::test]
async fn the_first_grant_of_a_process_costs_one_request_more_for_the_time() {
    let (_server, count, client, _) = counted().await;
    let fresh = DynamoDbStore::new(client, TABLE);

    let key = fresh_key("job");
    obtain(&fresh, &key, "a", LONG).await;
    assert_eq!(count.take(), 2);

    held(fresh.obtain(&claim(&key, "b", LONG)).await.unwrap());
    obtain(&fresh, &fresh_key("job"), "a", LONG).await;
    assert_eq!(count.take(), 2);
}

#[tokio::test]
async fn an_item_made_by_hand_costs_one_request_more_once() {
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
