//! The crate `dynamodb-lease`.

use async_trait::async_trait;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::TimeToLiveSpecification;
use dynamodb_lease::Lease;

use super::bare_dynamodb::make_table;
use crate::TTL;
use crate::lock::{Held, Lock};

pub(crate) struct DynamoDbLease(dynamodb_lease::Client);

impl DynamoDbLease {
    pub(crate) async fn make_table(client: &Client) {
        make_table(client, TABLE, "key").await;
        let ttl =
            TimeToLiveSpecification::builder().attribute_name("lease_expiry").enabled(true).build();
        let update = client
            .update_time_to_live()
            .table_name(TABLE)
            .time_to_live_specification(ttl.unwrap())
            .send();
        update.await.unwrap();
    }

    pub(crate) async fn with_table(client: Client) -> Self {
        let builder = dynamodb_lease::Client::builder()
            .table_name(TABLE)
            .lease_ttl_seconds(TTL.as_secs().try_into().unwrap());
        Self(builder.build_and_check_db(client).await.unwrap())
    }
}

#[async_trait]
impl Lock for DynamoDbLease {
    fn name(&self) -> &'static str {
        "dynamodb-lease 0.22.1"
    }

    async fn take(&self, key: &str) -> Option<Box<dyn Held>> {
        let lease = self.0.acquire(key).await.ok()?;
        Some(Box::new(lease))
    }
}

#[async_trait]
impl Held for Lease {
    async fn free(self: Box<Self>) {
        // A key that was not freed makes the next cycle fail.
        drop(self.release().await);
    }
}

const TABLE: &str = "dynamodb-lease";
