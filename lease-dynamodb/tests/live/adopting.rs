//! Tests on tables that other programs have made.

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use lease_core::store::{LeaseTable, LockStore};
use lease_core::{Change, StoreErrorKind, Value, Written};
use lease_dynamodb::Column;
use lease_test_servers::claims::{claim, fresh_key, granted, held, obtain, take_over};
use lease_test_servers::dynamodb::Server;

use crate::setup::{LONG, put_into, s, with_long_timeout};

#[tokio::test]
async fn checkpoint_table_is_adopted_with_its_rows() {
    let server = Server::dynoxide().await;
    let store = with_long_timeout(server.client(), "checkpoints")
        .with_column(Column::Key, "shard_id")
        .with_column(Column::Lessee, "assigned_to")
        .without_purging()
        .build()
        .unwrap();
    store.ensure_table().await.unwrap();
    let payload = [
        ("lease_timeout", s("2020-01-01 00:00:00 UTC")),
        ("checkpoint", s("495903382714902566085596925389253")),
        ("parent_shard_id", AttributeValue::N("0".to_owned())),
    ];
    let row = [("shard_id", s("shard-0")), ("assigned_to", s("dead worker"))];
    put_into(&server, "checkpoints", &[&row[..], &payload[..]].concat()).await;
    let key = "shard-0".parse().unwrap();

    let ttl = Duration::from_millis(300);
    let holder = held(store.obtain(&claim(&key, "worker", ttl)).await.unwrap());
    assert_eq!(holder.lessee.as_str(), "dead worker");
    let grant = take_over(&store, &key, "worker", ttl).await;
    let change = Change::new().set("checkpoint", "SHARD_END");
    assert_eq!(store.update(&grant, &change).await.unwrap(), Written::Applied);
    store.release(&grant, None).await.unwrap();

    let record = store.read(&key).await.unwrap().unwrap();
    assert_eq!(record.attributes["checkpoint"], Value::from("SHARD_END"));
    assert_eq!(record.attributes["lease_timeout"], Value::from("2020-01-01 00:00:00 UTC"));
    assert_eq!(record.attributes.len(), 3, "{:?}", record.attributes);
}

#[tokio::test]
async fn columns_may_have_any_name() {
    let server = Server::dynoxide().await;
    let mut builder = with_long_timeout(server.client(), "odd");
    for (column, name) in [
        (Column::Key, "name"), // `name` is a reserved word, like the next two names
        (Column::Lessee, "owner"),
        (Column::Token, "counter"),
        (Column::ExpiresAt, "a.b-c #d :e"),
        (Column::PurgeAt, "ttl"),
    ] {
        builder = builder.with_column(column, name);
    }
    let store = builder.build().unwrap();
    store.ensure_table().await.unwrap();
    let key = fresh_key("job");

    let grant = obtain(&store, &key, "a", LONG).await;
    held(store.obtain(&claim(&key, "b", LONG)).await.unwrap());
    assert!(store.evict(&key, &grant.token.into()).await.unwrap());
    store.release(&grant, None).await.unwrap();

    granted(store.obtain(&claim(&key, "b", LONG)).await.unwrap());
}

#[tokio::test]
async fn mistyped_key_is_refused_with_only_existing_rows() {
    let server = Server::dynoxide().await;
    let store = with_long_timeout(server.client(), "jobs").only_existing_rows().build().unwrap();
    store.ensure_table().await.unwrap();
    put_into(&server, "jobs", &[("lease_key", s("payroll"))]).await;

    let mistyped = claim(&"pay roll".parse().unwrap(), "a", LONG);
    let error = store.obtain(&mistyped).await.unwrap_err();

    assert_eq!(error.kind(), StoreErrorKind::Misconfigured);
    let text = std::error::Error::source(&error).unwrap().to_string();
    assert!(text.contains("\"pay roll\"") && text.contains("jobs"), "{text}");
    granted(store.obtain(&claim(&"payroll".parse().unwrap(), "a", LONG)).await.unwrap());
}
