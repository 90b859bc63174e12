//! The settings of a store. The builder checks their values.

use std::time::Duration;

use lease_aws::table_client::Timing;

use crate::items::Columns;

/// How a contender decides that a lease has expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(clippy::exhaustive_enums, reason = "a contender trusts the server's clock or it does not")]
pub enum TimeMode {
    /// By DynamoDB's time or by observation, as soon as either shows the expiry.
    ///
    /// Assumes that the clocks behind DynamoDB's `Date` headers differ by less than the margin.
    #[default]
    ServerTimeAndObservation,
    /// By observation alone: a contender takes a lease that the contender observed unchanged for
    /// the whole ttl.
    ///
    /// If all lessees of the table use this mode, only a bound on the rate of this machine's clock
    /// is assumed. A lessee that uses DynamoDB's time can still take the lease of a lessee in
    /// this mode.
    ObservationOnly,
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

impl Settings {
    pub(crate) fn new(table: String) -> Self {
        Self {
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
        }
    }
}
