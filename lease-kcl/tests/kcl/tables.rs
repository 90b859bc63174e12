//! Tests of creation, deletion and listing of rows, and of refused inputs.

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
};
use futures_util::TryStreamExt;
use lease_core::store::{Claim, LeaseTable, LockStore, Nonce, Obtained};
use lease_core::{Attributes, LeaseKey, StoreErrorKind, Value, Written};
use lease_kcl::KclTable;
use lease_kinesis::Position;
use lease_kinesis::extension::shard_row::ShardRow;
use lease_memory::MemoryStore;
use lease_test_servers::dynamodb::Server;

use crate::shop::{Shop, TTL, key, n, s};

#[tokio::test]
async fn claim_without_row_creates_no_row() {
    let shop = Shop::new().await;

    let held = shop.refused("a").await;

    assert_eq!(held.expires_in, Some(Duration::ZERO));
    assert!(shop.raw().await.is_empty());
}

#[tokio::test]
async fn recreated_row_starts_with_a_larger_token() {
    let shop = Shop::new().await;
    shop.put(None).await;
    let grant = shop.granted("a").await;

    assert_eq!(shop.table.delete(&grant).await.unwrap(), Written::Applied);
    // The SDK repeats the delete if it got no answer.
    assert_eq!(shop.table.delete(&grant).await.unwrap(), Written::Applied);
    assert!(shop.raw().await.is_empty());
    shop.put(None).await;

    assert!(shop.granted("b").await.token > grant.token);
}

#[tokio::test]
async fn new_row_is_readable_for_kcl() {
    let shop = Shop::new().await;
    let of_stream: LeaseKey =
        "shop/shards/123456789012:clicks:1700000000:shardId-1".parse().unwrap();
    let attributes = |checkpoint: &str| {
        Attributes::from([
            ("checkpoint".to_owned(), Value::from(checkpoint)),
            ("checkpointTimestamp".to_owned(), Value::from(5_u64)),
        ])
    };

    assert!(shop.table.create(&of_stream, &attributes("AT_TIMESTAMP")).await.unwrap());
    assert!(!shop.table.create(&of_stream, &attributes("TRIM_HORIZON")).await.unwrap());
    let empty = shop.table.create(&key(), &Attributes::new()).await;

    assert_eq!(empty.unwrap_err().kind(), StoreErrorKind::Refused);
    let request = shop.client.scan().table_name("shop");
    let rows = request.send().await.unwrap().items.unwrap();
    let [row] = rows.as_slice() else { panic!("{rows:?}") };
    assert_eq!(row["leaseKey"], s("123456789012:clicks:1700000000:shardId-1"));
    assert_eq!(row["streamName"], s("123456789012:clicks:1700000000"));
    assert_eq!((&row["shardId"], &row["leaseCounter"]), (&s("shardId-1"), &n(0)));
    // KCL workers whose initial position is `LATEST` have no time for `AT_TIMESTAMP`.
    assert_eq!(row["checkpoint"], s("LATEST"));
    let read = shop.table.read(&of_stream).await.unwrap().unwrap();
    let shard = ShardRow::from_record(&"shop".parse().unwrap(), read).unwrap().unwrap();
    assert_eq!(shard.checkpoint, Position::AtTimestamp(5));
}

#[tokio::test]
async fn list_has_leases_of_table_and_rows_of_store_ours() {
    let shop = Shop::new().await;
    shop.put(None).await;
    for (key, entity) in [("Leader", "LEADER"), ("shop/workers/a", "WORKER_METRIC_STATS")] {
        let request = shop.client.put_item().table_name("shop").item("leaseKey", s(key));
        request.item("entityType", s(entity)).send().await.unwrap();
    }
    let worker: LeaseKey = "shop/workers/a".parse().unwrap();
    let claim = Claim::new(worker.clone(), "a".parse().unwrap(), Nonce::random(), TTL);

    let granted = shop.table.obtain(&claim).await.unwrap();

    assert!(matches!(granted, Obtained::Granted(..)));
    let records: Vec<_> = shop.table.list("shop/").try_collect().await.unwrap();
    let keys: Vec<_> = records.iter().map(|record| record.key.as_str()).collect();
    assert_eq!(keys, ["shop/shards/shardId-1", "shop/workers/a"]);
    let shards: Vec<_> = shop.table.list("shop/shards/shardId-2").try_collect().await.unwrap();
    assert_eq!(shards, []);
    let request = shop.client.scan().table_name("shop").send().await.unwrap();
    assert_eq!(request.count, 3, "our row is not in KCL's table");
}

#[tokio::test]
async fn shard_of_another_application_is_refused() {
    let shop = Shop::new().await;
    let other: LeaseKey = "market/shards/shardId-1".parse().unwrap();

    let error = shop.table.read(&other).await.unwrap_err();

    assert_eq!(error.kind(), StoreErrorKind::Misconfigured);
}

#[tokio::test]
async fn table_with_another_key_is_refused() {
    let server = Server::dynoxide().await;
    let client = server.client();
    let attribute = AttributeDefinition::builder()
        .attribute_name("shardId")
        .attribute_type(ScalarAttributeType::S)
        .build();
    let hash = KeySchemaElement::builder().attribute_name("shardId").key_type(KeyType::Hash);
    let request = client.create_table().table_name("shop").billing_mode(BillingMode::PayPerRequest);
    let request = request.attribute_definitions(attribute.unwrap());
    request.key_schema(hash.build().unwrap()).send().await.unwrap();
    let table = KclTable::new(client, "shop", Arc::new(MemoryStore::new())).unwrap();

    let error = table.ensure_table().await.unwrap_err();

    assert_eq!(error.kind(), StoreErrorKind::Misconfigured);
    let text = std::error::Error::source(&error).unwrap().to_string();
    assert!(text.contains("shardId S HASH") && text.contains("leaseKey S HASH"), "{text}");
}

#[test]
fn values_out_of_range_are_refused_before_any_request() {
    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(aws_sdk_dynamodb::config::BehaviorVersion::latest())
        .build();
    let client = Client::from_conf(config);
    let builder =
        |name: &str| KclTable::builder(client.clone(), name, Arc::new(MemoryStore::new()));

    assert!(builder("shop").build().is_ok());
    assert!(builder("").build().is_err());
    assert!(builder("shop/shards").build().is_err());
    assert!(builder("shop").with_failover_time(Duration::ZERO).build().is_err());
    assert!(builder("shop").with_request_timeout(Duration::ZERO).build().is_err());
    assert!(builder("shop").with_clock_rate_error(0.2).build().is_err());
}
