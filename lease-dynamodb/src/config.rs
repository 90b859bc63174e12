//! How a store keeps its leases: a builder whose values are checked before any I/O.

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use lease_core::{Clock, InvalidInput, LeaseOptions};

use crate::column::{Column, Columns};
use crate::parts::Timing;
use crate::store::DynamoDbStore;

/// By what a contender judges that the holder of a lease is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(clippy::exhaustive_enums, reason = "a contender trusts the server's clock or it does not")]
pub enum TimeMode {
    /// By DynamoDB's own time, or by observation: whichever comes first.
    ///
    /// Assumes that the clocks behind DynamoDB's `Date` headers differ by less than the margin.
    #[default]
    ServerTimeAndObservation,
    /// By observation alone: a lease is taken once it was seen unchanged for its whole ttl.
    ///
    /// Assumes nothing but the rate of this machine's clock, where all lessees of the table are set
    /// so: one that goes by DynamoDB's time can still take a lease of one that does not. Whoever
    /// finds a dead lease must watch it for a ttl first.
    ObservationOnly,
}

/// Sets up a [`DynamoDbStore`].
///
/// # Examples
///
/// Adopts a table that other programs made: its key is `shard_id`, its owner `assigned_to`.
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

#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) table: String,
    pub(crate) columns: Columns,
    pub(crate) margin: Duration,
    pub(crate) time_mode: TimeMode,
    pub(crate) timing: Timing,
    pub(crate) retention: Option<Duration>,
    pub(crate) existing_only: bool,
    pub(crate) lock_client_items: bool,
    pub(crate) consistent_listing: bool,
    pub(crate) observations: usize,
}

impl DynamoDbStoreBuilder {
    pub(crate) fn new(client: Client, table: String) -> Self {
        Self {
            client,
            settings: Settings {
                table,
                columns: Columns::default(),
                margin: Duration::from_secs(2),
                time_mode: TimeMode::default(),
                timing: Timing::default(),
                retention: Some(Duration::from_hours(7 * 24)),
                existing_only: false,
                lock_client_items: false,
                consistent_listing: false,
                observations: 10_000,
            },
        }
    }

    /// Keeps `column` under another `name`: 1 to 255 bytes, and no other column's.
    pub fn with_column(mut self, column: Column, name: impl Into<String>) -> Self {
        self.settings.columns.rename(column, name.into());
        self
    }

    /// Takes a lease over by DynamoDB's time no sooner than `margin` after it ran out.
    ///
    /// Defaults to 2 s: more than the clocks of DynamoDB's front ends, which are kept together
    /// by Amazon's own time service, were ever reported to differ.
    pub fn with_margin(mut self, margin: Duration) -> Self {
        self.settings.margin = margin;
        self
    }

    /// Judges by `mode` whether a holder is gone. Defaults to both ways, since a process that
    /// has just started then need not wait for a lease that is long dead.
    pub fn with_time_mode(mut self, mode: TimeMode) -> Self {
        self.settings.time_mode = mode;
        self
    }

    /// Assumes that the rates of this machine's clock and of any other differ by at most
    /// `error`: 0 to 0.1. Defaults to 0.01, as
    /// [`LeaseOptions`](lease_core::LeaseOptions::with_clock_rate_error) does.
    pub fn with_clock_rate_error(mut self, error: f64) -> Self {
        self.settings.timing.clock_rate_error = error;
        self
    }

    /// Waits for each answer no longer than `limit`, the SDK's retries included. Defaults to
    /// 3 s: below the heartbeat period of any lease of 10 s and more. A locker gives up after
    /// one heartbeat period anyway.
    pub fn with_request_timeout(mut self, limit: Duration) -> Self {
        self.settings.timing.request_timeout = limit;
        self
    }

    /// Lets the table's TTL purge an item that carries no attributes, `retention` after its
    /// lease ran out: a day at least. Defaults to 7 days.
    ///
    /// An item that was made by hand, created through [`LeaseTable`](lease_core::LeaseTable) or
    /// given attributes is never purged.
    pub fn with_retention(mut self, retention: Duration) -> Self {
        self.settings.retention = Some(retention);
        self
    }

    /// Never lets the table's TTL purge anything: for tables that were there before.
    pub fn without_purging(mut self) -> Self {
        self.settings.retention = None;
        self
    }

    /// Refuses keys that have no item yet, so that a mistyped one is an error and not a lease
    /// that nobody contends for. Purges nothing, since the items are the operator's.
    pub fn only_existing_rows(mut self) -> Self {
        self.settings.existing_only = true;
        self.settings.retention = None;
        self
    }

    /// Leases items that carry columns of Amazon's `DynamoDB` lock client (`recordVersionNumber`,
    /// `isReleased`), too. By default they are refused: that client does not heed this store's
    /// leases.
    ///
    /// For a table that moves from one to the other. This store does not take such an item while
    /// the lock client renews it. The lock client takes one of this store's after its own
    /// `leaseDuration`, and at once where `isReleased` is on it: then both hold the key. Stop every
    /// lock client of a key before this store leases it.
    pub fn with_lock_client_items(mut self) -> Self {
        self.settings.lock_client_items = true;
        self
    }

    /// Lists with strongly consistent reads, at twice the cost. Off by default: a stale
    /// listing is told from a fresh one by nobody who acts on it with conditional writes.
    pub fn with_consistent_listing(mut self) -> Self {
        self.settings.consistent_listing = true;
        self
    }

    /// Remembers what it saw of up to `keys` keys that others hold: at least one. Defaults to
    /// 10,000, about 3 MB.
    pub fn with_observed_keys(mut self, keys: usize) -> Self {
        self.settings.observations = keys;
        self
    }

    /// Reads lease time from `clock`: for tests.
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.settings.timing.clock = clock;
        self
    }

    /// The store.
    ///
    /// # Errors
    ///
    /// Where a value is out of range, or two columns have one name.
    pub fn build(self) -> Result<DynamoDbStore, InvalidInput> {
        let settings = &self.settings;
        settings.columns.check()?;
        settings.timing.check()?;
        // An item must outlive every lease on it, or its token and nonce are forgotten too soon.
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

    /// The store, where the values are known to be right.
    pub(crate) fn build_unchecked(self) -> DynamoDbStore {
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
    fn values_out_of_range_are_refused_before_any_request() {
        assert!(builder().build().is_ok());
        assert!(builder().with_clock_rate_error(0.2).build().is_err());
        assert!(builder().with_request_timeout(Duration::ZERO).build().is_err());
        assert!(builder().with_retention(Duration::from_mins(1)).build().is_err());
        assert!(builder().with_observed_keys(0).build().is_err());
        assert!(builder().with_column(Column::Lessee, "").build().is_err());
    }
}
