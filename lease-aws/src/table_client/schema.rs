//! Creates a missing table, and checks the key of an existing table.

use std::time::Duration;

use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
    TableDescription, TableStatus,
};
use lease_core::store::Clock;
use lease_core::{StoreError, StoreErrorKind};

use super::client::TableClient;
use super::error::store_error;

const ACTIVATION_TIMEOUT: Duration = Duration::from_mins(5);

/// DynamoDB does not notify its clients, so the client polls. The pause doubles with each poll.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

impl TableClient {
    /// Creates the table if it does not exist, billed on demand, and waits until it is active. Many processes
    /// may call this method at once.
    ///
    /// # Errors
    ///
    /// If the table has another key, if it is not active after five minutes, or if a request fails.
    ///
    /// # Cancel safety
    ///
    /// The caller may drop the future at any time, and call again.
    pub async fn ensure_table(&self, clock: &dyn Clock) -> Result<(), StoreError> {
        let deadline = clock.now() + ACTIVATION_TIMEOUT;
        let mut pause = FIRST_PAUSE;
        loop {
            match self.describe().await? {
                None => self.create_table().await?,
                Some(found) => {
                    self.check_key(&found)?;
                    let status = found.table_status;
                    if matches!(status, Some(TableStatus::Active | TableStatus::Updating)) {
                        return Ok(());
                    }
                }
            }
            if clock.now() > deadline {
                let text =
                    format!("table {} is not active after {ACTIVATION_TIMEOUT:?}", self.table.name);
                return Err(store_error(StoreErrorKind::Unavailable, text));
            }
            tokio::time::sleep(pause).await;
            pause = LONGEST_PAUSE.min(pause * 2);
        }
    }

    async fn describe(&self) -> Result<Option<TableDescription>, StoreError> {
        let request = self.sdk.describe_table().table_name(&self.table.name);
        match self.with_time_limit("DescribeTable", request.send()).await? {
            Ok(answer) => Ok(answer.table),
            Err(SdkError::ServiceError(service))
                if service.err().is_resource_not_found_exception() =>
            {
                Ok(None)
            }
            Err(error) => Err(self.request_error("DescribeTable", error)),
        }
    }

    async fn create_table(&self) -> Result<(), StoreError> {
        let key = &self.table.key;
        let attribute = AttributeDefinition::builder()
            .attribute_name(key)
            .attribute_type(ScalarAttributeType::S)
            .build();
        let hash_key =
            KeySchemaElement::builder().attribute_name(key).key_type(KeyType::Hash).build();
        let (Ok(attribute), Ok(hash_key)) = (attribute, hash_key) else {
            let text = "the SDK refused the schema of the key column";
            return Err(store_error(StoreErrorKind::Misconfigured, text));
        };
        let request = self
            .sdk
            .create_table()
            .table_name(&self.table.name)
            .attribute_definitions(attribute)
            .key_schema(hash_key)
            .billing_mode(BillingMode::PayPerRequest);
        match self.with_time_limit("CreateTable", request.send()).await? {
            Ok(_) => Ok(()),
            // Another process created the table first. The next poll checks its key.
            Err(SdkError::ServiceError(service))
                if service.err().is_resource_in_use_exception() =>
            {
                Ok(())
            }
            Err(error) => Err(self.request_error("CreateTable", error)),
        }
    }

    fn check_key(&self, found: &TableDescription) -> Result<(), StoreError> {
        let type_of = |name: &str| {
            let mut attributes = found.attribute_definitions().iter();
            let attribute = attributes.find(|attribute| attribute.attribute_name() == name);
            attribute.map_or("?", |attribute| attribute.attribute_type().as_str())
        };
        let parts = found.key_schema().iter().map(|part| {
            let name = part.attribute_name();
            format!("{name} {} {}", type_of(name), part.key_type().as_str())
        });
        let described = parts.collect::<Vec<_>>().join(", ");
        let needed = format!("{} S HASH", self.table.key);
        if described == needed {
            return Ok(());
        }
        let text = format!(
            "table {} has the key ({described}) instead of ({needed}): {}",
            self.table.name, self.table.advice.other_key
        );
        Err(store_error(StoreErrorKind::Misconfigured, text))
    }
}

#[cfg(test)]
mod tests;
