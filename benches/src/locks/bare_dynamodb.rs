//! The baseline on DynamoDB: a conditional `PutItem` and a conditional `DeleteItem`, with the SDK's client.

use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType,
    ScalarAttributeType,
};

use crate::lock::{Held, Lock};

#[derive(Clone)]
pub(crate) struct BareDynamoDb(Client);

struct BareHeld {
    client: Client,
    key: String,
    value: u64,
}

pub(crate) async fn make_table(client: &Client, name: &str, key: &str) {
    let definition = AttributeDefinition::builder()
        .attribute_name(key)
        .attribute_type(ScalarAttributeType::S)
        .build()
        .unwrap();
    let schema =
        KeySchemaElement::builder().attribute_name(key).key_type(KeyType::Hash).build().unwrap();
    let made = client
        .create_table()
        .table_name(name)
        .attribute_definitions(definition)
        .key_schema(schema)
        .billing_mode(BillingMode::PayPerRequest)
        .send();
    made.await.unwrap();
}

impl BareDynamoDb {
    pub(crate) fn new(client: Client) -> Self {
        Self(client)
    }

    pub(crate) async fn make_table(client: &Client) {
        make_table(client, TABLE, "key").await;
    }
}

#[async_trait]
impl Lock for BareDynamoDb {
    fn name(&self) -> &'static str {
        "bare writes"
    }

    async fn take(&self, key: &str) -> Option<Box<dyn Held>> {
        let value = NEXT.fetch_add(1, Ordering::Relaxed);
        let put = self
            .0
            .put_item()
            .table_name(TABLE)
            .item("key", AttributeValue::S(key.to_owned()))
            .item("value", AttributeValue::N(value.to_string()))
            .condition_expression("attribute_not_exists(#k)")
            .expression_attribute_names("#k", "key")
            .send();
        put.await.ok()?;
        Some(Box::new(BareHeld { client: self.0.clone(), key: key.to_owned(), value }))
    }
}

#[async_trait]
impl Held for BareHeld {
    async fn free(self: Box<Self>) {
        let delete = self
            .client
            .delete_item()
            .table_name(TABLE)
            .key("key", AttributeValue::S(self.key))
            .condition_expression("#v = :v")
            .expression_attribute_names("#v", "value")
            .expression_attribute_values(":v", AttributeValue::N(self.value.to_string()))
            .send();
        delete.await.unwrap();
    }
}

const TABLE: &str = "bare";

static NEXT: AtomicU64 = AtomicU64::new(0);

/// Polls every 50 ms while the key is held.
pub(crate) struct Polling(pub(crate) BareDynamoDb);

#[async_trait]
impl Lock for Polling {
    fn name(&self) -> &'static str {
        "bare writes, every 50 ms"
    }

    async fn take(&self, key: &str) -> Option<Box<dyn Held>> {
        loop {
            if let Some(held) = self.0.take(key).await {
                return Some(held);
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    }
}
