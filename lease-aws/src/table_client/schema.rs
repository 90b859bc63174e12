//! The table itself: made if there is none, checked if there is.

use std::time::Duration;

use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
    TableDescription, TableStatus,
};
use lease_core::{Clock, StoreError, StoreErrorKind};

use super::error::told;
use super::request::Requests;

/// How long a table may take to become active: AWS needs some ten seconds.
const PATIENCE: Duration = Duration::from_mins(5);

/// Between two looks at a table that is being made, doubled with each: DynamoDB tells nobody when it is
/// done. Local servers are at once; at AWS, the last pause is the most that is waited for nothing.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

impl Requests {
    /// Makes the table if there is none, billed on demand, and waits until it can be used.
    ///
    /// May be called by many processes at once, dropped at any time, and called again.
    pub async fn ensure_table(&self, clock: &dyn Clock) -> Result<(), StoreError> {
        let gives_up = clock.now() + PATIENCE;
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
            if clock.now() > gives_up {
                let text = format!("table {} is not active after {PATIENCE:?}", self.table.name);
                return Err(told(StoreErrorKind::Unavailable, text));
            }
            tokio::time::sleep(pause).await;
            pause = LONGEST_PAUSE.min(pause * 2);
        }
    }

    async fn describe(&self) -> Result<Option<TableDescription>, StoreError> {
        let request = self.client.describe_table().table_name(&self.table.name);
        match self.within("DescribeTable", request.send()).await? {
            Ok(answer) => Ok(answer.table),
            Err(SdkError::ServiceError(service))
                if service.err().is_resource_not_found_exception() =>
            {
                Ok(None)
            }
            Err(error) => Err(self.failed("DescribeTable", error)),
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
            let text = "the key column could not be described";
            return Err(told(StoreErrorKind::Misconfigured, text));
        };
        let request = self
            .client
            .create_table()
            .table_name(&self.table.name)
            .attribute_definitions(attribute)
            .key_schema(hash_key)
            .billing_mode(BillingMode::PayPerRequest);
        match self.within("CreateTable", request.send()).await? {
            Ok(_) => Ok(()),
            // Another process was faster; its table is checked like any other.
            Err(SdkError::ServiceError(service))
                if service.err().is_resource_in_use_exception() =>
            {
                Ok(())
            }
            Err(error) => Err(self.failed("CreateTable", error)),
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
            "table {} has the key ({described}), and leases need ({needed}): {}",
            self.table.name, self.table.advice.other_key
        );
        Err(told(StoreErrorKind::Misconfigured, text))
    }
}

#[cfg(test)]
mod tests;
