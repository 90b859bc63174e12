//! A server, a store on it, and its items as they are.

use std::collections::HashMap;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue;
use lease_core::LeaseKey;
use lease_dynamodb::{DynamoDbStore, DynamoDbStoreBuilder};
use lease_tests::dynamodb::{Server, client_of};
use lease_tests::proxy::Proxy;

pub(crate) const TABLE: &str = "leases";

/// Long enough that no test runs into it.
pub(crate) const LONG: Duration = Duration::from_mins(1);

pub(crate) type Raw = HashMap<String, AttributeValue>;

/// A server in this process, a store on it, and its table.
pub(crate) async fn world() -> (Server, DynamoDbStore) {
    let server = Server::dynoxide().await;
    let store = ready(&server, &server.client()).await;
    (server, store)
}

/// A store on `server` whose table is there, and that knows the server's time.
pub(crate) async fn ready(server: &Server, client: &Client) -> DynamoDbStore {
    let store = builder(server, client).build().unwrap();
    store.ensure_table().await.unwrap();
    store
}

pub(crate) fn builder(server: &Server, client: &Client) -> DynamoDbStoreBuilder {
    // No test that uses it is about answers that are late.
    let builder = DynamoDbStore::builder(client.clone(), server.table(TABLE))
        .with_request_timeout(Duration::from_mins(1));
    if server.knows_ttl() { builder } else { builder.without_purging() }
}

/// A store behind `proxy` that gives up a request in seconds, and has asked nothing yet. A server on a
/// busy machine answers sooner.
pub(crate) fn hasty(proxy: &Proxy) -> DynamoDbStore {
    DynamoDbStore::builder(client_of(proxy.address()), TABLE)
        .with_request_timeout(Duration::from_secs(5))
        .build()
        .unwrap()
}

pub(crate) async fn item(server: &Server, key: &LeaseKey) -> Option<Raw> {
    server
        .client()
        .get_item()
        .table_name(server.table(TABLE))
        .key("lease_key", s(key.as_str()))
        .consistent_read(true)
        .send()
        .await
        .unwrap()
        .item
}

/// Puts an item as an operator or another program does.
pub(crate) async fn put(server: &Server, item: &[(&str, AttributeValue)]) {
    put_into(server, server.table(TABLE), item).await;
}

pub(crate) async fn put_into(server: &Server, table: &str, item: &[(&str, AttributeValue)]) {
    let item = item.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    server.client().put_item().table_name(table).set_item(Some(item)).send().await.unwrap();
}

pub(crate) fn s(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}

pub(crate) fn n(number: u64) -> AttributeValue {
    AttributeValue::N(number.to_string())
}
