//! Sets up servers, stores and items.

use std::collections::HashMap;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue;
use lease_core::LeaseKey;
use lease_dynamodb::{DynamoDbStore, DynamoDbStoreBuilder};
use lease_test_servers::dynamodb::{Server, client_of};
use lease_test_servers::proxy::Proxy;

pub(crate) const TABLE: &str = "leases";

/// Longer than any test.
pub(crate) const LONG: Duration = Duration::from_mins(1);

/// Longer than a store's margin plus the inaccuracy of DynamoDB's time.
pub(crate) const MARGINS: Duration = Duration::from_secs(6);

pub(crate) type Raw = HashMap<String, AttributeValue>;

pub(crate) async fn server_and_store() -> (Server, DynamoDbStore) {
    let server = Server::dynoxide().await;
    let store = ready(&server, &server.client()).await;
    (server, store)
}

/// The store knows the server's time.
pub(crate) async fn ready(server: &Server, client: &Client) -> DynamoDbStore {
    let store = builder(server, client).build().unwrap();
    store.ensure_table().await.unwrap();
    store
}

/// The store waits long for slow servers, so tests of late answers cannot use it.
pub(crate) fn with_long_timeout(client: Client, table: &str) -> DynamoDbStoreBuilder {
    DynamoDbStore::builder(client, table).with_request_timeout(Duration::from_mins(1))
}

pub(crate) fn builder(server: &Server, client: &Client) -> DynamoDbStoreBuilder {
    let builder = with_long_timeout(client.clone(), server.table(TABLE));
    if server.knows_ttl() { builder } else { builder.without_purging() }
}

/// The store has sent no request yet. Requests time out after 5 s, later than a server answers on a
/// busy machine.
pub(crate) fn with_short_timeout(proxy: &Proxy) -> DynamoDbStore {
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
