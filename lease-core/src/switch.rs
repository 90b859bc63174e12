//! A switch that turns a whole fleet on or off.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::error::{StoreError, StoreErrorKind};
use crate::key::LeaseKey;
use crate::locker::Locker;
use crate::options::LeaseOptions;
use crate::store::attributes::{Change, Value};
use crate::store::grant::Written;
use crate::store::{LeaseTable, within};

/// Turns the work of a fleet on or off.
///
/// Each process reads the switch before a run. A run that has started continues when the switch is turned
/// off. [`TableSwitch`] stores the switch in a table of leases.
#[async_trait]
pub trait Switch: fmt::Debug + Send + Sync + 'static {
    /// Returns whether the switch is on.
    ///
    /// # Errors
    ///
    /// If the switch cannot be read. Then nothing runs.
    async fn is_on(&self) -> Result<bool, StoreError>;

    /// Turns the switch on for the whole fleet. The default returns an error, for switches that
    /// other programs change.
    ///
    /// # Errors
    ///
    /// If the state of the switch is unknown.
    async fn turn_on(&self) -> Result<(), StoreError> {
        Err(turned_elsewhere())
    }

    /// Turns the switch off for the whole fleet. The default returns an error.
    ///
    /// # Errors
    ///
    /// If the state of the switch is unknown.
    async fn turn_off(&self) -> Result<(), StoreError> {
        Err(turned_elsewhere())
    }
}

/// A switch on its own record in a table of leases.
///
/// Each check is one read, so a change applies to the next run of every process. Until the first change,
/// the switch is off, or [on](TableSwitch::on_at_first). A change waits while the table is unreachable.
///
/// # Examples
///
/// ```
/// use lease_core::{Locker, Switch, TableSwitch};
/// use lease_memory::MemoryStore;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = MemoryStore::new();
/// let switch = TableSwitch::new("export/switch".parse()?, &Locker::new(store.clone()), store);
/// assert!(!switch.is_on().await?);
/// assert_eq!(switch.state().await?, None, "not changed yet");
///
/// switch.turn_on().await?;
/// assert!(switch.is_on().await?);
/// assert_eq!(switch.state().await?, Some(true));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct TableSwitch {
    key: LeaseKey,
    /// The options of this locker have a short ttl, so a crash during a change blocks other processes only
    /// briefly.
    locker: Locker,
    table: Arc<dyn LeaseTable>,
    at_first: bool,
}

impl TableSwitch {
    /// Makes a switch on the record of `key` in `table`. The key must have no other use. `locker`
    /// must be on the same table.
    pub fn new(key: LeaseKey, locker: &Locker, table: impl LeaseTable) -> Self {
        let locker = locker.clone().with_options(turning(locker.options()));
        Self { key, locker, table: Arc::new(table), at_first: false }
    }

    /// Returns a switch that is on until its first change. All processes must use the same setting.
    #[must_use]
    pub fn on_at_first(self) -> Self {
        Self { at_first: true, ..self }
    }

    /// Returns whether the switch is on. Returns `None` until the first change.
    ///
    /// # Errors
    ///
    /// If the table does not answer, or if the record has another use.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn state(&self) -> Result<Option<bool>, StoreError> {
        let limit = self.locker.options().request_timeout();
        let record = within(limit, self.table.read(&self.key)).await?;
        match record.as_ref().and_then(|record| record.attributes.get(ON)) {
            Some(Value::Bool(on)) => Ok(Some(*on)),
            Some(other) => Err(StoreError::new(
                StoreErrorKind::Corrupt,
                format!("{ON:?} of {} is not true or false: {other:?}", self.key),
            )),
            None => Ok(None),
        }
    }

    /// Writes under a short lease, so all processes see simultaneous changes in the same order.
    async fn turn(&self, on: bool) -> Result<(), StoreError> {
        let change = Change::new().set(ON, on);
        let mut tries = 0;
        loop {
            tries += 1;
            let lease = self.locker.wait_until_obtained(&self.key).await?;
            let written = lease.update(&*self.table, &change).await;
            // Releases before the next attempt, so that the table refuses a late duplicate of this update.
            let released = lease.release().await;
            match written {
                Ok(Written::Applied) => return Ok(()),
                // The change expects no values, so either answer means that the lease was lost.
                Ok(Written::Lost(_) | Written::Unexpected) => (),
                Err(error) if tries < MOST_TRIES && error.is_retryable() => drop(released),
                Err(error) => return Err(error),
            }
        }
    }
}

#[async_trait]
impl Switch for TableSwitch {
    async fn is_on(&self) -> Result<bool, StoreError> {
        Ok(self.state().await?.unwrap_or(self.at_first))
    }

    /// # Cancel safety
    ///
    /// Safe, but the state of the switch is then unknown.
    async fn turn_on(&self) -> Result<(), StoreError> {
        self.turn(true).await
    }

    /// # Cancel safety
    ///
    /// Safe, but the state of the switch is then unknown.
    async fn turn_off(&self) -> Result<(), StoreError> {
        self.turn(false).await
    }
}

impl fmt::Debug for TableSwitch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableSwitch").field("key", &self.key).finish_non_exhaustive()
    }
}

// All methods must be forwarded: a default method would hide the method of the inner switch.
#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl<S: Switch + ?Sized> Switch for Arc<S> {
    async fn is_on(&self) -> Result<bool, StoreError> {
        (**self).is_on().await
    }

    async fn turn_on(&self) -> Result<(), StoreError> {
        (**self).turn_on().await
    }

    async fn turn_off(&self) -> Result<(), StoreError> {
        (**self).turn_off().await
    }
}

#[expect(
    clippy::expect_used,
    reason = "the ttl is in range, and long enough for a hundred heartbeats"
)]
fn turning(options: &LeaseOptions) -> LeaseOptions {
    options.clone().with_ttl(TURNING).expect("a ttl")
}

fn turned_elsewhere() -> StoreError {
    StoreError::new(StoreErrorKind::Refused, "another program turns this switch on and off")
}

const ON: &str = "on";

const TURNING: Duration = Duration::from_secs(5);

const MOST_TRIES: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switch_lease_keeps_options_of_locker() {
        let minute = Duration::from_secs(60);
        let options = LeaseOptions::new(minute).unwrap();
        let options = options.with_poll_interval(minute).unwrap();
        let options = options.with_heartbeats_per_ttl(100).unwrap();

        let turning = turning(&options);

        assert_eq!(turning.ttl(), TURNING);
        let restored = turning.with_ttl(minute).unwrap().with_grace(options.grace()).unwrap();
        assert_eq!(restored, options);
    }
}
