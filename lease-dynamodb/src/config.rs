//! Configures a store. The builder checks all values before any request.

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use lease_core::store::Clock;
use lease_core::{InvalidInput, LeaseOptions};

use crate::items::Column;
use crate::settings::{Settings, TimeMode};
use crate::store::DynamoDbStore;

/// Configures a [`DynamoDbStore`].
///
/// # Examples
///
/// Adopts a table of other programs. The key column is `shard_id`, and the owner column is
/// `assigned_to`:
///
/// ```
/// # fn adopt(client: aws_sdk_dynamodb::Client) -> Result<(), lease_core::InvalidInput> {
/// use lease_dynamodb::{Column, DynamoDbStore};
///
/// let store = DynamoDbStore::builder(client, "checkpoints")
///     .with_column(Column::Key, "shard_id")
///     .with_column(Column::Lessee, "assigned_to")
///     .without_purging()
///     .build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it builds"]
pub struct DynamoDbStoreBuilder {
    client: Client,
    settings: Settings,
}

impl DynamoDbStore {
    /// Creates a store of the leases in `table`, with all defaults.
    ///
    /// Sends no request. [`ensure_table`](Self::ensure_table) creates the table. The store uses the
    /// client's connections, credentials and retries.
    pub fn new(client: Client, table: impl Into<String>) -> Self {
        Self::builder(client, table).build_unchecked()
    }

    /// Configures a store: column names, time, limits.
    pub fn builder(client: Client, table: impl Into<String>) -> DynamoDbStoreBuilder {
        DynamoDbStoreBuilder::new(client, table.into())
    }
}

impl DynamoDbStoreBuilder {
    fn new(client: Client, table: String) -> Self {
        Self { client, settings: Settings::new(table) }
    }

    /// Stores `column` under another `name`: 1 to 255 bytes, different from all other columns.
    pub fn with_column(mut self, column: Column, name: impl Into<String>) -> Self {
        self.settings.columns.rename(column, name.into());
        self
    }

    /// Waits for `margin` after an expiry in DynamoDB's time before a contender takes the lease.
    ///
    /// Defaults to 2 s. Amazon's time service synchronizes the clocks of DynamoDB's front ends. No
    /// report of a difference above 2 s is known.
    pub fn with_margin(mut self, margin: Duration) -> Self {
        self.settings.margin = margin;
        self
    }

    /// Decides by `mode` whether a lease has expired. Defaults to
    /// [`TimeMode::ServerTimeAndObservation`]: a new process then takes a long expired lease at
    /// once.
    pub fn with_time_mode(mut self, mode: TimeMode) -> Self {
        self.settings.time_mode = mode;
        self
    }

    /// Assumes that the rates of this machine's clock and of any other clock differ by at most `error`:
    /// 0 to 0.1, as a fraction of the rate. Defaults to 0.01, as
    /// [`LeaseOptions`](lease_core::LeaseOptions::with_clock_rate_error) does.
    pub fn with_clock_rate_error(mut self, error: f64) -> Self {
        self.settings.timing.clock_rate_error = error;
        self
    }

    /// Waits at most `limit` for each answer, including the SDK's retries. The limit must be more
    /// than zero. Defaults to 3 s, less than the heartbeat period of any lease of 10 s or more.
    pub fn with_request_timeout(mut self, limit: Duration) -> Self {
        self.settings.timing.request_timeout = limit;
        self
    }

    /// Lets the table's TTL purge an item without attributes `retention` after its lease expired:
    /// at least a day. Defaults to 7 days.
    ///
    /// The TTL never purges items that were made by hand or through
    /// [`LeaseTable`](lease_core::store::LeaseTable), or that have attributes.
    pub fn with_retention(mut self, retention: Duration) -> Self {
        self.settings.retention = Some(retention);
        self
    }

    /// Disables purging by the table's TTL. Existing tables need this setting.
    pub fn without_purging(mut self) -> Self {
        self.settings.retention = None;
        self
    }

    /// Refuses keys without an item, so that a mistyped key is an error. Disables purging, since
    /// the items belong to the operator.
    pub fn only_existing_rows(mut self) -> Self {
        self.settings.existing_only = true;
        self.settings.retention = None;
        self
    }

    /// Also leases items with the columns of Amazon's DynamoDB lock client (`recordVersionNumber`,
    /// `isReleased`). By default the store refuses such items, since the lock client ignores this
    /// store's leases.
    ///
    /// This setting is for the time while a table moves from the lock client to this store. This
    /// store takes such an item if no column has changed for the longer of the item's
    /// `leaseDuration` and the ttl.
    ///
    /// The lock client does not notice heartbeats of this store. The client takes an item of this
    /// store after the item's `leaseDuration`, and at once if the item has `isReleased`. Two
    /// processes then hold the key. So stop every lock client of a key before this store leases the
    /// key.
    pub fn with_lock_client_items(mut self) -> Self {
        self.settings.lock_client_items = true;
        self
    }

    /// Lists with strongly consistent reads, at twice the cost. Off by default, since a conditional
    /// write that acts on a stale listing is safe.
    pub fn with_consistent_listing(mut self) -> Self {
        self.settings.consistent_listing = true;
        self
    }

    /// Remembers the observed state of up to `keys` held keys: at least one. Defaults to 10,000,
    /// about 3 MB.
    pub fn with_observed_keys(mut self, keys: usize) -> Self {
        self.settings.observations = keys;
        self
    }

    /// Reads lease time from `clock`, for tests.
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.settings.timing.clock = clock;
        self
    }

    /// Builds the store. Sends no request.
    ///
    /// # Errors
    ///
    /// Fails if a value is out of range, or if two columns have one name.
    pub fn build(self) -> Result<DynamoDbStore, InvalidInput> {
        let settings = &self.settings;
        settings.columns.validate()?;
        settings.timing.validate()?;
        // If an item is purged while a lease on the item can be valid, its token and nonce are
        // lost.
        if let Some(retention) = settings.retention
            && retention < LeaseOptions::MAX_TTL
        {
            return Err(InvalidInput::new(format!(
                "retention {retention:?} is too short: at least {:?}, the longest ttl",
                LeaseOptions::MAX_TTL
            )));
        }
        if settings.observations == 0 {
            return Err(InvalidInput::new("0 observed keys: at least one"));
        }
        Ok(self.build_unchecked())
    }

    fn build_unchecked(self) -> DynamoDbStore {
        DynamoDbStore::with(&self.client, self.settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn builder() -> DynamoDbStoreBuilder {
        let config = aws_sdk_dynamodb::Config::builder()
            .behavior_version(aws_sdk_dynamodb::config::BehaviorVersion::latest())
            .build();
        DynamoDbStoreBuilder::new(Client::from_conf(config), "leases".to_owned())
    }

    #[test]
    fn value_out_of_range_is_refused() {
        assert!(builder().build().is_ok());
        assert!(builder().with_clock_rate_error(0.2).build().is_err());
        assert!(builder().with_request_timeout(Duration::ZERO).build().is_err());
        assert!(builder().with_retention(Duration::from_mins(1)).build().is_err());
        assert!(builder().with_observed_keys(0).build().is_err());
        assert!(builder().with_column(Column::Lessee, "").build().is_err());
    }
}
