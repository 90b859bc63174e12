//! Creates the table, and enables its TTL.

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::types::{TimeToLiveSpecification, TimeToLiveStatus};
use lease_core::{StoreError, StoreErrorKind};

use lease_aws::table_client::store_error;

use crate::items::Column;
use crate::store::DynamoDbStore;

impl DynamoDbStore {
    /// Creates the table if the table does not exist, billed on demand, and waits until the table
    /// is active. Then enables the TTL, which purges old items.
    ///
    /// Call this at every start. Many processes may call at once. The call needs the actions
    /// `dynamodb:DescribeTable` and `CreateTable`. A store with purging also needs
    /// `DescribeTimeToLive` and `UpdateTimeToLive`.
    ///
    /// # Errors
    ///
    /// Fails if the table has another key, or its TTL uses another column. The error names this key
    /// or column. Also fails if a request fails, or if the table is not active after five minutes.
    ///
    /// # Cancel safety
    ///
    /// The caller may drop the future at any time, and call again.
    pub async fn ensure_table(&self) -> Result<(), StoreError> {
        self.shared.table.ensure_table(self.shared.time.clock()).await?;
        match self.shared.settings.retention {
            Some(_) => self.ensure_ttl().await,
            None => Ok(()),
        }
    }

    async fn ensure_ttl(&self) -> Result<(), StoreError> {
        let table = &self.shared.table;
        if self.has_ttl().await? {
            return Ok(());
        }
        let column = self.shared.settings.columns.name(Column::PurgeAt);
        let specification = TimeToLiveSpecification::builder()
            .attribute_name(column)
            .enabled(true)
            .build()
            .map_err(|error| StoreError::new(StoreErrorKind::Misconfigured, error))?;
        let request = table
            .sdk()
            .update_time_to_live()
            .table_name(table.name())
            .time_to_live_specification(specification);
        match table.with_time_limit("UpdateTimeToLive", request.send()).await? {
            Ok(_) => Ok(()),
            // DynamoDB refuses a change without effect, and a change soon after another change.
            // Another process may have enabled the TTL in both cases.
            Err(SdkError::ServiceError(service))
                if matches!(
                    service.err().code(),
                    Some("ValidationException" | "ResourceInUseException")
                ) && self.has_ttl().await? =>
            {
                Ok(())
            }
            Err(error) => Err(table.request_error("UpdateTimeToLive", error)),
        }
    }

    async fn has_ttl(&self) -> Result<bool, StoreError> {
        let table = &self.shared.table;
        let request = table.sdk().describe_time_to_live().table_name(table.name());
        let found = match table.with_time_limit("DescribeTimeToLive", request.send()).await? {
            Ok(answer) => answer.time_to_live_description,
            Err(error) => return Err(table.request_error("DescribeTimeToLive", error)),
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
        Err(store_error(
            StoreErrorKind::Misconfigured,
            format!(
                "the TTL of table {} uses column {:?} instead of {column:?}: build the store \
                 `without_purging()`, or name that column with `with_column(Column::PurgeAt, …)`",
                table.name(),
                found.attribute_name().unwrap_or_default()
            ),
        ))
    }
}
