//! The table itself, and what purges it.

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::types::{TimeToLiveSpecification, TimeToLiveStatus};
use lease_core::{StoreError, StoreErrorKind};

use crate::column::Column;
use crate::parts::told;
use crate::store::DynamoDbStore;

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
        self.shared.requests.ensure_table(self.shared.time.clock()).await?;
        match self.shared.settings.retention {
            Some(_) => self.ensure_ttl().await,
            None => Ok(()),
        }
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
            Err(error) => Err(requests.failed("UpdateTimeToLive", error)),
        }
    }

    /// Whether the table's TTL goes by our column already.
    async fn purges(&self) -> Result<bool, StoreError> {
        let requests = &self.shared.requests;
        let request = requests.client().describe_time_to_live().table_name(requests.table());
        let found = match requests.within("DescribeTimeToLive", request.send()).await? {
            Ok(answer) => answer.time_to_live_description,
            Err(error) => return Err(requests.failed("DescribeTimeToLive", error)),
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
