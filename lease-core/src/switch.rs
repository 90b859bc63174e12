//! On or off, for a whole fleet.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::store::{LeaseTable, within};
use crate::{Change, LeaseKey, LeaseOptions, Locker, StoreError, StoreErrorKind, Value, Written};
use async_trait::async_trait;

/// Says whether a fleet is to work at all.
///
/// Asked before each run, before the lease is asked for. Whoever is at work when it is turned off
/// goes on to the end. [`TableSwitch`] is one on any table of leases; bring your own for a service
/// that keeps such flags.
#[async_trait]
pub trait Switch: fmt::Debug + Send + Sync + 'static {
    /// Whether it is on.
    ///
    /// # Errors
    ///
    /// Where that is not known: nothing is run then.
    async fn is_on(&self) -> Result<bool, StoreError>;

    /// Turns it on, for everybody, until it is turned off.
    ///
    /// The default refuses: a switch that is turned elsewhere.
    ///
    /// # Errors
    ///
    /// Where it is not known which way it is turned now.
    async fn turn_on(&self) -> Result<(), StoreError> {
        Err(turned_elsewhere())
    }

    /// Turns it off, for everybody, until it is turned on.
    ///
    /// The default refuses: a switch that is turned elsewhere.
    ///
    /// # Errors
    ///
    /// Where it is not known which way it is turned now.
    async fn turn_off(&self) -> Result<(), StoreError> {
        Err(turned_elsewhere())
    }
}

/// A switch on a record of its own in a table of leases, which lasts as long as the table does.
///
/// Each question is one read, and nothing is cached: what is turned is turned for the next run of
/// every process. Before anybody has turned it, it is off, unless said
/// [otherwise](TableSwitch::on_at_first). To turn it while the table cannot be reached takes until it
/// can: for a limit, wrap the call into `tokio::time::timeout`.
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
///
/// switch.turn_on().await?;
/// assert!(switch.is_on().await?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct TableSwitch {
    key: LeaseKey,
    /// Its leases are short: turning takes a moment, and one who died at it should not block.
    locker: Locker,
    table: Arc<dyn LeaseTable>,
    at_first: bool,
}

impl TableSwitch {
    /// A switch on the record of `key`, which must be nothing else's, in `table`; `locker` leases
    /// from the same table.
    pub fn new(key: LeaseKey, locker: &Locker, table: impl LeaseTable) -> Self {
        let locker = locker.clone().with_options(turning(locker.options()));
        Self { key, locker, table: Arc::new(table), at_first: false }
    }

    /// The same switch, but on for as long as nobody has turned it. Give all processes the same.
    #[must_use]
    pub fn on_at_first(self) -> Self {
        Self { at_first: true, ..self }
    }

    /// Writes under a short lease, since a table lets nobody write without one. So of two who turn
    /// it at once, one is the last for everybody.
    async fn turn(&self, on: bool) -> Result<(), StoreError> {
        let limit = self.locker.options().request_timeout();
        let change = Change::new().set(ON, on);
        let mut tries = 0;
        loop {
            tries += 1;
            let lease = self.locker.wait_until_obtained(&self.key).await?;
            let written = within(limit, self.table.update(lease.grant(), &change)).await;
            // Before the next try: a request that is still on its way is refused from here on.
            let released = lease.release().await;
            match written {
                Ok(Written::Applied) => return Ok(()),
                // Nothing was expected, so only a lost lease is left.
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
        let limit = self.locker.options().request_timeout();
        let record = within(limit, self.table.read(&self.key)).await?;
        match record.as_ref().and_then(|record| record.attributes.get(ON)) {
            Some(Value::Bool(on)) => Ok(*on),
            Some(other) => Err(StoreError::new(
                StoreErrorKind::Corrupt,
                format!("{ON:?} of {} is not true or false: {other:?}", self.key),
            )),
            None => Ok(self.at_first),
        }
    }

    /// # Cancel safety
    ///
    /// Safe; whether it was turned is not known then.
    async fn turn_on(&self) -> Result<(), StoreError> {
        self.turn(true).await
    }

    /// # Cancel safety
    ///
    /// Safe; whether it was turned is not known then.
    async fn turn_off(&self) -> Result<(), StoreError> {
        self.turn(false).await
    }
}

impl fmt::Debug for TableSwitch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableSwitch").field("key", &self.key).finish_non_exhaustive()
    }
}

// A forwarded trait must not fall back to a default by accident.
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

/// The options of the lease under which a switch is turned: those of the locker, with a short ttl.
#[expect(
    clippy::expect_used,
    reason = "the ttl is in range, and long enough for a hundred heartbeats"
)]
fn turning(options: &LeaseOptions) -> LeaseOptions {
    options.clone().with_ttl(TURNING).expect("a ttl")
}

fn turned_elsewhere() -> StoreError {
    StoreError::new(StoreErrorKind::Refused, "this switch is turned elsewhere")
}

/// The attribute that says which way it is turned.
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
        // A short ttl bounds the grace.
        let restored = turning.with_ttl(minute).unwrap().with_grace(options.grace()).unwrap();
        assert_eq!(restored, options);
    }
}
