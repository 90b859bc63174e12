//! The builder of a KCL table.

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use lease_aws::table_client::Timing;
use lease_core::InvalidInput;
use lease_core::store::{Clock, LeaseTable};
use lease_kinesis::{Application, InitialPosition, InvalidText};

use crate::store::{KclTable, Settings};

/// Sets up a [`KclTable`].
///
/// # Examples
///
/// KCL workers with other settings than the defaults:
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use lease_core::store::LeaseTable;
/// use lease_kcl::KclTable;
/// use lease_kinesis::InitialPosition;
///
/// # fn set_up(
/// #     client: aws_sdk_dynamodb::Client,
/// #     workers: Arc<dyn LeaseTable>,
/// # ) -> Result<(), lease_core::InvalidInput> {
/// let table = KclTable::builder(client, "payments", workers)
///     .with_table("payments-leases")
///     .with_failover_time(Duration::from_secs(30)) // KCL's failoverTimeMillis
///     .with_initial_position(InitialPosition::TrimHorizon)
///     .build()?;
/// # drop(table);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it builds"]
pub struct KclTableBuilder {
    client: Client,
    application: String,
    table: Option<String>,
    ours: Arc<dyn LeaseTable>,
    settings: Settings,
}

impl KclTable {
    /// Uses the lease table that has the name of the KCL `application`, with default settings. The store
    /// `ours` keeps the rows of our workers. Sends no request.
    ///
    /// # Errors
    ///
    /// If the application's name does not consist of 1 to 256 letters, digits, `_`, `.` or `-`.
    pub fn new(
        client: Client,
        application: impl Into<String>,
        ours: Arc<dyn LeaseTable>,
    ) -> Result<Self, InvalidInput> {
        Self::builder(client, application, ours).build()
    }

    /// Returns a builder, which sets the table's name, KCL's settings and the clock.
    pub fn builder(
        client: Client,
        application: impl Into<String>,
        ours: Arc<dyn LeaseTable>,
    ) -> KclTableBuilder {
        KclTableBuilder::new(client, application.into(), ours)
    }
}

impl KclTableBuilder {
    fn new(client: Client, application: String, ours: Arc<dyn LeaseTable>) -> Self {
        let settings = Settings {
            failover: Duration::from_secs(10),
            initial: InitialPosition::default(),
            timing: Timing::default(),
            consistent_listing: false,
        };
        Self { client, application, table: None, ours, settings }
    }

    /// Sets the table's name. Defaults to the application's name, as in KCL.
    pub fn with_table(mut self, table: impl Into<String>) -> Self {
        self.table = Some(table.into());
        self
    }

    /// Takes over a KCL worker's lease if its counter has not changed for `failover`, which is more than 0.
    /// Set the value of the KCL workers' `failoverTimeMillis`. Defaults to 10 s, as in KCL.
    ///
    /// Our workers' ttl must not be longer, because KCL workers take over a lease after their own failover
    /// time.
    pub fn with_failover_time(mut self, failover: Duration) -> Self {
        self.settings.failover = failover;
        self
    }

    /// Sets the start position of shards that no worker has read, as in the KCL workers' settings. Rows with
    /// `AT_TIMESTAMP` lack the time, so this setting must supply the time. Defaults to the newest record.
    pub fn with_initial_position(mut self, initial: InitialPosition) -> Self {
        self.settings.initial = initial;
        self
    }

    /// Assumes that the rates of two machines' clocks differ by at most `error`, 0 to 0.1. Defaults to 0.01,
    /// as in [`LeaseOptions`](lease_core::LeaseOptions::with_clock_rate_error).
    pub fn with_clock_rate_error(mut self, error: f64) -> Self {
        self.settings.timing.clock_rate_error = error;
        self
    }

    /// Waits at most `limit` for each answer, including the SDK's retries. `limit` is more than 0. Defaults
    /// to 3 s, below the heartbeat period of a lease of 10 s.
    pub fn with_request_timeout(mut self, limit: Duration) -> Self {
        self.settings.timing.request_timeout = limit;
        self
    }

    /// Lists rows with strongly consistent reads, at twice the cost. Off by default, because a claim reads
    /// its row consistently.
    pub fn with_consistent_listing(mut self) -> Self {
        self.settings.consistent_listing = true;
        self
    }

    /// Measures ttls and failover times by `clock`, for tests.
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.settings.timing.clock = clock;
        self
    }

    /// Builds the table. Sends no request.
    ///
    /// # Errors
    ///
    /// If a value is out of range, or the application's name is invalid.
    pub fn build(self) -> Result<KclTable, InvalidInput> {
        let settings = self.settings;
        let application: Application = self
            .application
            .parse()
            .map_err(|invalid: InvalidText| InvalidInput::new(invalid.to_string()))?;
        settings.timing.validate()?;
        if settings.failover.is_zero() {
            return Err(InvalidInput::new(
                "failover time 0s: every lease would be taken over at once",
            ));
        }
        let table = self.table.unwrap_or_else(|| application.as_str().to_owned());
        Ok(KclTable::with(self.client, table, &application, self.ours, settings))
    }
}
