//! Tests of the calls that create and check the table.

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
    TimeToLiveSpecification,
};
use futures_util::future::join_all;
use lease_core::StoreErrorKind;
use lease_dynamodb::{Column, DynamoDbStore};
use lease_test_servers::dynamodb::{Count, Server};

use crate::setup::{TABLE, with_long_timeout};

#[tokio::test]
async fn ensure_table_by_many_processes_succeeds() {
    let server = Server::dynoxide().await;
    let stores: Vec<_> =
        (0..16).map(|_| with_long_timeout(server.client(), TABLE).build().unwrap()).collect();

    for answer in join_all(stores.iter().map(DynamoDbStore::ensure_table)).await {
        answer.unwrap();
    }

    let client = server.client();
    let described = client.describe_table().table_name(TABLE).send().await.unwrap();
    let billing = described.table.unwrap().billing_mode_summary.unwrap();
    assert_eq!(billing.billing_mode, Some(BillingMode::PayPerRequest));
    let ttl = client.describe_time_to_live().table_name(TABLE).send().await.unwrap();
    let ttl = ttl.time_to_live_description.unwrap();
    assert_eq!(ttl.attribute_name(), Some("purge_at"));
}

#[tokio::test]
async fn new_table_costs_three_requests() {
    let server = Server::dynoxide().await;
    let (count, config) = Count::of(server.config());
    let store = with_long_timeout(Client::from_conf(config.build()), TABLE);
    let store = store.without_purging().build().unwrap();

    store.ensure_table().await.unwrap();

    assert_eq!(count.take(), 3, "two polls and the creation");
}

#[tokio::test]
async fn table_with_another_key_is_refused_and_described() {
    let server = Server::dynoxide().await;
    let part = |name: &str, kind| {
        KeySchemaElement::builder().attribute_name(name).key_type(kind).build().unwrap()
    };
    let attribute = |name: &str, kind| {
        AttributeDefinition::builder().attribute_name(name).attribute_type(kind).build().unwrap()
    };
    server
        .client()
        .create_table()
        .table_name(TABLE)
        .key_schema(part("pk", KeyType::Hash))
        .key_schema(part("sk", KeyType::Range))
        .attribute_definitions(attribute("pk", ScalarAttributeType::S))
        .attribute_definitions(attribute("sk", ScalarAttributeType::N))
        .billing_mode(BillingMode::PayPerRequest)
        .send()
        .await
        .unwrap();

    let store = with_long_timeout(server.client(), TABLE).build().unwrap();
    let error = store.ensure_table().await.unwrap_err();

    assert_eq!(error.kind(), StoreErrorKind::Misconfigured);
    let text = std::error::Error::source(&error).unwrap().to_string();
    assert!(text.contains("pk S HASH, sk N RANGE"), "{text}");
    assert!(text.contains("lease_key S HASH"), "{text}");
}

#[tokio::test]
async fn ttl_on_another_column_is_refused_unless_purging_is_off() {
    let server = Server::dynoxide().await;
    let store = || with_long_timeout(server.client(), TABLE);
    store().without_purging().build().unwrap().ensure_table().await.unwrap();
    let theirs = TimeToLiveSpecification::builder()
        .attribute_name("their_ttl")
        .enabled(true)
        .build()
        .unwrap();
    server
        .client()
        .update_time_to_live()
        .table_name(TABLE)
        .time_to_live_specification(theirs)
        .send()
        .await
        .unwrap();

    let error = store().build().unwrap().ensure_table().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Misconfigured);
    let text = std::error::Error::source(&error).unwrap().to_string();
    assert!(text.contains("their_ttl"), "{text}");

    store().without_purging().build().unwrap().ensure_table().await.unwrap();
    let named = store().with_column(Column::PurgeAt, "their_ttl");
    named.build().unwrap().ensure_table().await.unwrap();
}
