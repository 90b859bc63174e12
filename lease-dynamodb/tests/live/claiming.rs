//! Tests of the attributes of a claim: their costs and their limits.

use std::error::Error;

use aws_sdk_dynamodb::Client;
use lease_core::store::{LeaseTable, LockStore};
use lease_core::{Attributes, Locker, StoreErrorKind, Value};
use lease_dynamodb::Column;
use lease_test_servers::claims::{claim, fresh_key, granted, held};
use lease_test_servers::dynamodb::{Count, Server, client_of};

use crate::requests::counted;
use crate::setup::{LONG, TABLE, item, ready, s, with_long_timeout};

fn named(name: &str, value: impl Into<Value>) -> Attributes {
    Attributes::from([(name.to_owned(), value.into())])
}

#[tokio::test]
async fn grant_and_its_attributes_are_one_write() {
    let server = Server::dynoxide().await;
    let proxy = server.proxy().await;
    let store = ready(&server, &client_of(proxy.address())).await;
    let (key, other) = (fresh_key("job"), fresh_key("job"));
    let requests = || {
        let count =
            |operation: &str| proxy.requests_with(&format!("DynamoDB_20120810.{operation}"));
        [count("UpdateItem"), count("PutItem"), count("GetItem"), count("Query")]
    };
    let before = requests();

    let first = claim(&key, "a", LONG).with_attributes(named("address", "10.0.0.1"));
    let (grant, _) = granted(store.obtain(&first).await.unwrap());
    let adopting = claim(&key, "b", LONG).with_attributes(named("address", "10.0.0.2"));
    let (_, attributes) = granted(store.adopt(&grant, &adopting).await.unwrap());
    let locker = Locker::new(store.clone()).with_attributes(named("address", "10.0.0.3"));
    let lease = locker.wait_until_obtained(&other).await.unwrap();

    let sent: Vec<_> = requests().iter().zip(before).map(|(now, before)| now - before).collect();
    assert_eq!(sent, [3, 0, 0, 0], "writes and reads of an obtain, an adoption and an obtain");
    assert_eq!(attributes, named("address", "10.0.0.2"));
    assert_eq!(lease.attributes(), &named("address", "10.0.0.3"));
    assert_eq!(item(&server, &key).await.unwrap()["address"], s("10.0.0.2"));
}

#[tokio::test]
async fn impossible_attributes_are_refused_before_any_request() {
    let (_server, count, client, store) = counted().await;
    let renamed =
        with_long_timeout(client, TABLE).with_column(Column::Lessee, "owner").build().unwrap();
    let key = fresh_key("job");
    let (grant, _) = granted(store.obtain(&claim(&key, "a", LONG)).await.unwrap());
    count.take();

    for (store, attributes, reason) in [
        (&store, named("token", "7"), "a column of the lease itself"),
        (&store, named("", "7"), "a column of the lease itself"),
        (&renamed, named("owner", "me"), "a column of the lease itself"),
        (&store, named("note", "x".repeat(410_000)), "up to 400 KB"),
    ] {
        let refused = claim(&key, "b", LONG).with_attributes(attributes);
        for answer in [store.obtain(&refused).await, store.adopt(&grant, &refused).await] {
            let error = answer.unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::Refused, "`update` returns this kind, too");
            let text = error.source().unwrap().to_string();
            assert!(text.contains(reason), "{text}");
        }
    }

    assert_eq!(count.take(), 0, "requests");
    held(store.obtain(&claim(&key, "b", LONG)).await.unwrap());
}

/// `name`, `status` and `ttl` are reserved words of DynamoDB's expressions.
#[tokio::test]
async fn attributes_may_be_named_like_reserved_words() {
    let server = Server::dynoxide().await;
    let (_, config) = Count::of(server.config());
    let store = ready(&server, &Client::from_conf(config.build())).await;
    let key = fresh_key("job");
    let attributes: Attributes = ["name", "status", "ttl", "a.b-c #d :e", "lessee2"]
        .map(|name| (name.to_owned(), Value::from(name)))
        .into();

    let claim = claim(&key, "a", LONG).with_attributes(attributes.clone());
    let (_, returned) = granted(store.obtain(&claim).await.unwrap());

    assert_eq!(returned, attributes);
    assert_eq!(store.read(&key).await.unwrap().unwrap().attributes, attributes);
}
