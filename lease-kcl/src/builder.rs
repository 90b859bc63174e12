//! How a KCL table is set up: what has a default, and what is refused.

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use lease_core::{Clock, InvalidInput, LeaseTable};
use lease_dynamodb::parts::Timing;

use super::store::{KclTable, Settings};
use crate::names::Application;
use crate::position::InitialPosition;

/// Sets up a [`KclTable`].
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
    /// The table of the KCL `application`, called like it, with every default; all rows but those
    /// of shards are in `ours`.
    ///
    /// Sends nothing: the table is asked for with the first operation, or by
    /// [`ensure_table`](Self::ensure_table). The client's connections, credentials and retries are
    /// used as they are.
    ///
    /// # Errors
    ///
    /// Where the application's name is none: 1 to 256 letters, digits, `_`, `.` and `-`.
    pub fn new(
        client: Client,
        application: impl Into<String>,
        ours: Arc<dyn LeaseTable>,
    ) -> Result<Self, InvalidInput> {
        Self::builder(client, application, ours).build()
    }

    /// Sets up a table: its name, KCL's settings, time.
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

    /// Names the table; by default it is called like the application, as in KCL.
    pub fn with_table(mut self, table: impl Into<String>) -> Self {
        self.table = Some(table.into());
        self
    }

    /// Takes a worker of KCL for gone whose lease has not changed for `failover`: KCL's own
    /// `failoverTimeMillis`, by default 10 s.
    ///
    /// It must be what the workers of KCL have, and no shorter than the ttl of the workers here:
    /// they do not know of that, and go by theirs.
    pub fn with_failover_time(mut self, failover: Duration) -> Self {
        self.settings.failover = failover;
        self
    }

    /// Where shards begin that nobody has read, as the workers of KCL have it in their settings:
    /// by default with what arrives from now on. KCL writes `AT_TIMESTAMP` without the time.
    pub fn with_initial_position(mut self, initial: InitialPosition) -> Self {
        self.settings.initial = initial;
        self
    }

    /// Assumes that the rates of this machine's clock and of any other differ by at most `error`:
    /// 0 to 0.1. Defaults to 0.01, as
    /// [`LeaseOptions`](lease_core::LeaseOptions::with_clock_rate_error) does.
    pub fn with_clock_rate_error(mut self, error: f64) -> Self {
        self.settings.timing.clock_rate_error = error;
        self
    }

    /// Waits for each answer no longer than `limit`, the SDK's retries included. Defaults to 3 s:
    /// below the heartbeat period of any lease of 10 s and more.
    pub fn with_request_timeout(mut self, limit: Duration) -> Self {
        self.settings.timing.request_timeout = limit;
        self
    }

    /// Lists rows with strongly consistent reads, at twice the cost. Off by default: a stale list costs
    /// a claim that is refused, since each row is read consistently before it is taken.
    pub fn with_consistent_listing(mut self) -> Self {
        self.settings.consistent_listing = true;
        self
    }

    /// Reads lease time from `clock`: for tests.
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.settings.timing.clock = clock;
        self
    }

    /// The table. Sends nothing.
    ///
    /// # Errors
    ///
    /// Where a value is out of range, or the application's name is none.
    pub fn build(self) -> Result<KclTable, InvalidInput> {
        let settings = self.settings;
        let application: Application = self
            .application
            .parse()
            .map_err(|bad: crate::InvalidText| InvalidInput::new(bad.to_string()))?;
        settings.timing.check()?;
        if settings.failover.is_zero() {
            return Err(InvalidInput::new(
                "failover time 0s: every worker would be taken for gone",
            ));
        }
        let table = self.table.unwrap_or_else(|| application.as_str().to_owned());
        Ok(KclTable::with(self.client, table, &application, self.ours, settings))
    }
}
