//! The crate `dynamodb_lock`, which has one client per key.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use dynamodb_lock::{DynamoDbLockClient, DynamoDbOptions, LockItem};
use rusoto_core::{HttpClient, Region};
use rusoto_credential::StaticProvider;
use rusoto_dynamodb::DynamoDbClient;

use super::bare_dynamodb::make_table;
use crate::TTL;
use crate::lock::{Held, Lock};

pub(crate) struct DynamoDbLock {
    client: DynamoDbClient,
    owner: String,
}

struct DynamoDbLockHeld {
    client: Arc<DynamoDbLockClient>,
    item: LockItem,
}

impl DynamoDbLock {
    pub(crate) async fn make_table(client: &aws_sdk_dynamodb::Client) {
        make_table(client, TABLE, "key").await;
    }

    pub(crate) fn new(endpoint: String, owner: &str) -> Self {
        let region = Region::Custom { name: "us-east-1".to_owned(), endpoint };
        let credentials = StaticProvider::new_minimal("test".to_owned(), "test".to_owned());
        let client = DynamoDbClient::new_with(HttpClient::new().unwrap(), credentials, region);
        Self { client, owner: owner.to_owned() }
    }
}

#[async_trait]
impl Lock for DynamoDbLock {
    fn name(&self) -> &'static str {
        "dynamodb_lock 0.6.1"
    }

    async fn take(&self, key: &str) -> Option<Box<dyn Held>> {
        let options = DynamoDbOptions {
            partition_key_value: key.to_owned(),
            table_name: TABLE.to_owned(),
            owner_name: self.owner.clone(),
            lease_duration: TTL.as_secs(),
            refresh_period: Duration::from_secs(10),
            additional_time_to_wait_for_lock: Duration::from_secs(10),
        };
        let client = DynamoDbLockClient::for_region(Region::UsEast1)
            .with_client(self.client.clone())
            .with_options(options);
        let item = client.acquire_lock(None).await.ok()?;
        Some(Box::new(DynamoDbLockHeld { client: Arc::new(client), item }))
    }
}

#[async_trait]
impl Held for DynamoDbLockHeld {
    async fn free(self: Box<Self>) {
        assert!(self.client.release_lock(&self.item).await.unwrap(), "the lock should be held");
    }
}

const TABLE: &str = "dynamodb_lock";
