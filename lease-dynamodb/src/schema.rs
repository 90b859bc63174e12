//! The table itself: made if there is none, checked if there is.

use std::time::Duration;

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
    TableDescription, TableStatus, TimeToLiveSpecification, TimeToLiveStatus,
};
use lease_core::{StoreError, StoreErrorKind};

use crate::column::Column;
use crate::error::{failed, told};
use crate::store::DynamoDbStore;

/// How long a table may take to become active: AWS needs some ten seconds.
const PATIENCE: Duration = Duration::from_mins(5);
const PAUSE: Duration = Duration::from_millis(250);

impl DynamoDbStore {
    /// Makes the table if there is none, billed on demand, and waits until it can be used; turns
    /// on its TTL, so that old items are purged.
    ///
    /// May be called at every start, by many processes at once. Needs the actions
    /// `dynamodb:DescribeTable`, `CreateTable`, `DescribeTimeToLive` and `UpdateTimeToLive`;
    /// without purging, the last two are not needed.
    ///
    /// # Errors
    ///
    /// Where a table of that name has another key, or its TTL goes by another column: the error
    /// says what was found. Where DynamoDB could not be asked. Where the table is not active
    /// after five minutes.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time, and called again.
    pub async fn ensure_table(&self) -> Result<(), StoreError> {
        let clock = self.shared.time.clock();
        let gives_up = clock.now() + PATIENCE;
        loop {
            match self.describe().await? {
                None => self.create_table().await?,
                Some(found) => {
                    self.check_key(&found)?;
                    if found.table_status == Some(TableStatus::Active)
                        || found.table_status == Some(TableStatus::Updating)
                    {
                        break;
                    }
                }
            }
            if clock.now() > gives_up {
                return Err(told(
                    StoreErrorKind::Unavailable,
                    format!(
                        "table {} is not active after {PATIENCE:?}",
                        self.shared.requests.table()
                    ),
                ));
            }
            tokio::time::sleep(PAUSE).await;
        }
        match self.shared.settings.retention {
            Some(_) => self.ensure_ttl().await,
            None => Ok(()),
        }
    }

    async fn describe(&self) -> Result<Option<TableDescription>, StoreError> {
        let requests = &self.shared.requests;
        let request = requests.client().describe_table().table_name(requests.table());
        match requests.within("DescribeTable", request.send()).await? {
            Ok(answer) => Ok(answer.table),
            Err(SdkError::ServiceError(service))
                if service.err().is_resource_not_found_exception() =>
            {
                Ok(None)
            }
            Err(error) => Err(failed("DescribeTable", requests.table(), error)),
        }
    }

    async fn create_table(&self) -> Result<(), StoreError> {
        let requests = &self.shared.requests;
        let key = self.shared.settings.columns.name(Column::Key);
        let attribute = AttributeDefinition::builder()
            .attribute_name(key)
            .attribute_type(ScalarAttributeType::S)
            .build();
        let hash_key =
            KeySchemaElement::builder().attribute_name(key).key_type(KeyType::Hash).build();
        let (Ok(attribute), Ok(hash_key)) = (attribute, hash_key) else {
            return Err(told(
                StoreErrorKind::Misconfigured,
                "the key column could not be described",
            ));
        };
        let request = requests
            .client()
            .create_table()
            .table_name(requests.table())
            .attribute_definitions(attribute)
            .key_schema(hash_key)
            .billing_mode(BillingMode::PayPerRequest);
        match requests.within("CreateTable", request.send()).await? {
            Ok(_) => Ok(()),
            // Another process was faster; its table is checked like any other.
            Err(SdkError::ServiceError(service))
                if service.err().is_resource_in_use_exception() =>
            {
                Ok(())
            }
            Err(error) => Err(failed("CreateTable", requests.table(), error)),
        }
    }

    fn check_key(&self, found: &TableDescription) -> Result<(), StoreError> {
        let key = self.shared.settings.columns.name(Column::Key);
        let type_of = |name: &str| {
            found
                .attribute_definitions()
                .iter()
                .find(|attribute| attribute.attribute_name() == name)
                .map_or("?", |attribute| attribute.attribute_type().as_str())
        };
        if let [only] = found.key_schema()
            && only.key_type() == &KeyType::Hash
            && only.attribute_name() == key
            && type_of(key) == "S"
        {
            return Ok(());
        }
        let described: Vec<String> = found
            .key_schema()
            .iter()
            .map(|part| {
                let name = part.attribute_name();
                format!("{name} {} {}", type_of(name), part.key_type().as_str())
            })
            .collect();
        Err(told(
            StoreErrorKind::Misconfigured,
            format!(
                "table {} has the key ({}), and leases need ({key} S HASH): name the key column \
                 with `with_column(Column::Key, …)`, or use another table",
                self.shared.requests.table(),
                described.join(", ")
            ),
        ))
    }

    async fn ensure_ttl(&self) -> Result<(), StoreError> {
        let requests = &self.shared.requests;
        if self.purges().await? {
            return Ok(());
        }
        let column = self.shared.settings.columns.name(Column::PurgeAt);
        let specification = TimeToLiveSpecification::builder()
            .attribute_name(column)
            .enabled(true)
            .build()
            .map_err(|error| StoreError::new(StoreErrorKind::Misconfigured, error))?;
        let request = requests
            .client()
            .update_time_to_live()
            .table_name(requests.table())
            .time_to_live_specification(specification);
        match requests.within("UpdateTimeToLive", request.send()).await? {
            Ok(_) => Ok(()),
            // Refused as a change too soon after another, or as no change: somebody else did it.
            Err(SdkError::ServiceError(service))
                if matches!(
                    service.err().code(),
                    Some("ValidationException" | "ResourceInUseException")
                ) && self.purges().await? =>
            {
                Ok(())
            }
            Err(error) => Err(failed("UpdateTimeToLive", requests.table(), error)),
        }
    }

    /// Whether the table's TTL goes by our column already.
    async fn purges(&self) -> Result<bool, StoreError> {
        let requests = &self.shared.requests;
        let request = requests.client().describe_time_to_live().table_name(requests.table());
        let found = match requests.within("DescribeTimeToLive", request.send()).await? {
            Ok(answer) => answer.time_to_live_description,
            Err(error) => return Err(failed("DescribeTimeToLive", requests.table(), error)),
        };
        let enabled = found.filter(|found| {
            matches!(
                found.time_to_live_status,
                Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling)
            )
        });
        let Some(found) = enabled else {
            return Ok(false);
        };
        let column = self.shared.settings.columns.name(Column::PurgeAt);
        if found.attribute_name() == Some(column) {
            return Ok(true);
        }
        Err(told(
            StoreErrorKind::Misconfigured,
            format!(
                "the TTL of table {} goes by {:?}, and leases need {column:?}: build the store \
                 `without_purging()`, or name that column with `with_column(Column::PurgeAt, …)`",
                requests.table(),
                found.attribute_name().unwrap_or_default()
            ),
        ))
    }
}
